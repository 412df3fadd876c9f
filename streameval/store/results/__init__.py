"""The results that a store computes for its nights and keeps."""
