"""Carries out runs: on threads or on a cluster, kept in a store."""
