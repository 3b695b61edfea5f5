"""The ground floor: errors, paths, random streams, progress, and files written whole. Imports no other room."""
