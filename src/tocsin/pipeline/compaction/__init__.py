"""Compacts store logs of any size with the routers' own log readers. The grouping of lines is a transform."""
