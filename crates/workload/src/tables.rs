//! Published flow-size tables.
//!
//! Tables with the same name differ between sources, so each one names its source. Points are (bytes, cumulative
//! probability), with straight lines between them.

/// A published table.
#[derive(Debug)]
pub(crate) struct Published {
    /// Name in specifications.
    pub name: &'static str,
    /// Source of its points.
    pub source: &'static str,
    /// One line for listings.
    pub help: &'static str,
    /// (bytes, cumulative probability).
    pub points: &'static [(f64, f64)],
}

/// All published tables, in the order of listings.
pub(crate) const PUBLISHED: [Published; 4] = [
    Published {
        name: "web-search",
        source: "DCTCP's web search cluster as the HPCC simulator and HKUST's traffic generator tabulate it",
        help: "flow sizes of a web search cluster (mean 1.711 MB), Poisson arrivals",
        points: &[
            (0.0, 0.0),
            (10e3, 0.15),
            (20e3, 0.2),
            (30e3, 0.3),
            (50e3, 0.4),
            (80e3, 0.53),
            (200e3, 0.6),
            (1e6, 0.7),
            (2e6, 0.8),
            (5e6, 0.9),
            (10e6, 0.97),
            (30e6, 1.0),
        ],
    },
    Published {
        name: "data-mining",
        source: "VL2's data mining cluster as HKUST's traffic generator tabulates it",
        help: "flow sizes of a data mining cluster (mean 12.7 MB), Poisson arrivals",
        points: &[
            (0.0, 0.0),
            (180.0, 0.1),
            (216.0, 0.2),
            (560.0, 0.3),
            (900.0, 0.4),
            (1100.0, 0.5),
            (1870.0, 0.6),
            (3160.0, 0.7),
            (10e3, 0.8),
            (400e3, 0.9),
            (3.16e6, 0.95),
            (100e6, 0.98),
            (1e9, 1.0),
        ],
    },
    Published {
        name: "hadoop",
        source: "Facebook's Hadoop cluster as the HPCC simulator tabulates it (FbHdp)",
        help: "flow sizes of Facebook's Hadoop cluster (mean 0.12 MB), Poisson arrivals",
        points: &[
            (0.0, 0.0),
            (100.0, 0.01),
            (200.0, 0.02),
            (300.0, 0.05),
            (350.0, 0.15),
            (400.0, 0.2),
            (500.0, 0.3),
            (600.0, 0.4),
            (700.0, 0.5),
            (1e3, 0.6),
            (2e3, 0.67),
            (7e3, 0.7),
            (30e3, 0.72),
            (50e3, 0.82),
            (80e3, 0.87),
            (120e3, 0.9),
            (300e3, 0.95),
            (1e6, 0.975),
            (2e6, 0.99),
            (10e6, 1.0),
        ],
    },
    Published {
        name: "web-server",
        source: "Facebook's web servers as the ConWeave simulator tabulates them",
        help: "flow sizes of Facebook's web servers (mean 0.066 MB), Poisson arrivals",
        points: &[
            (150.0, 0.0),
            (300.0, 0.12),
            (300.0, 0.2),
            (600.0, 0.2),
            (1e3, 0.3),
            (2e3, 0.4),
            (3.1e3, 0.5),
            (6e3, 0.6),
            (20e3, 0.71),
            (60e3, 0.8),
            (150e3, 0.82),
            (300e3, 0.9),
            (500e3, 1.0),
        ],
    },
];
