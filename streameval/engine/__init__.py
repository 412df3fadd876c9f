"""The engine: one protocol, on threads of this process or on the workers of a Dask client."""
