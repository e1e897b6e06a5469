//! Readers of the files of other tools: Chakra and SimAI, coflow traces, connection matrices of htsim,
//! flows of ns-3.

pub(crate) mod chakra;
pub(crate) mod coflow_trace;
pub(crate) mod htsim_matrix;
pub(crate) mod ns3;
pub(crate) mod simai;
pub(crate) mod wrong_file;
