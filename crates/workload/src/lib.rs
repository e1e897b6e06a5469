//! Flow sizes, arrivals, communication patterns and traces, turned into lists of flows.
