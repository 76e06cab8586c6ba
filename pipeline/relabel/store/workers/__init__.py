"""Execution of the tasks of an artefact in local processes, or on a Dask cluster that shares files."""
