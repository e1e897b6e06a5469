"""The twin: forks of running fabrics, questions to them, and the record of how good the answers were."""
