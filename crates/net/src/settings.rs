//! From the texts of a program to the settings of a run.

use crate::error::NetError;
use pathloom_fabrics::{fabric_file, fabric_from_file_text, fabric_from_spec, fitting_min_rto, round_trip_ps};
use pathloom_model::spec::Spec;
use pathloom_model::{Fault, Nanos};
use pathloom_sim::{ControlSettings, SimSettings, LONGEST_RUN};
use pathloom_transport::TransportSpec;
use pathloom_workload::Workload;
use std::sync::Arc;

/// Scheme of programs that name none.
const SCHEME: &str = "ecmp";

/// The texts of a program, as on the command line.
pub(crate) struct Texts<'a> {
    pub(crate) fabric: &'a str,
    pub(crate) scheme: Option<&'a str>,
    pub(crate) transport: Option<&'a str>,
    pub(crate) control: Option<&'a str>,
    pub(crate) faults: Option<&'a str>,
    pub(crate) seed: u64,
    /// End of the clock; 0 is the latest one.
    pub(crate) end: Nanos,
}

impl Texts<'_> {
    /// The settings of a run without transfers.
    pub(crate) fn read(&self) -> Result<SimSettings, NetError> {
        let fabric = Arc::new(match fabric_file(self.fabric) {
            Some(path) => {
                let text = std::fs::read_to_string(path).map_err(|error| NetError::File(path.to_owned(), error))?;
                fabric_from_file_text(self.fabric, &text)?.fabric
            }
            None => fabric_from_spec(self.fabric)?,
        });
        let scheme = pathloom_schemes::parse(self.scheme.unwrap_or(SCHEME))?;
        let transport = self.transport.map(TransportSpec::parse).transpose()?;
        let control = self.control.map(ControlSettings::parse).transpose()?;
        let faults = self.faults.map(|text| Fault::parse_schedule(&fabric, text)).transpose()?;
        let (seed, none) = (self.seed, String::new());
        let transport = scheme.transport_with(transport).map_err(NetError::Transport)?;
        let transport = match round_trip_ps(&fabric) {
            Some((_, full_ps)) if !self.sets_min_rto() => transport.with_min_rto_at_most(fitting_min_rto(full_ps)),
            _ => transport,
        };
        Ok(SimSettings {
            workload: Arc::new(Workload { flows: Vec::new(), description: none, notes: Vec::new(), jobs: Vec::new() }),
            central: scheme.central(seed),
            programs: scheme.deployment(),
            transport,
            successor: Some(Box::new(move || scheme.central(seed))),
            control: control.unwrap_or_default(),
            duration: if self.end == Nanos::ZERO { LONGEST_RUN } else { self.end },
            drain: 0,
            faults: faults.unwrap_or_default(),
            seed,
            fabric,
        })
    }

    /// Whether the transport says what its minimum time-out is.
    fn sets_min_rto(&self) -> bool {
        let spec = self.transport.and_then(|text| Spec::parse("transport", text).ok());
        spec.is_some_and(|spec| spec.text_of("min_rto").is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn min_rto(fabric: &str, transport: Option<&str>) -> Nanos {
        let texts = Texts { fabric, scheme: None, transport, control: None, faults: None, seed: 1, end: Nanos::ZERO };
        texts.read().unwrap().transport.settings().min_rto
    }

    #[test]
    fn the_minimum_time_out_fits_the_fabric_unless_it_is_set() {
        const FABRIC: &str = "leaf-spine:spines=2,leaves=2,hosts=2,rate=100Gbps,delay=1us,buffer=100";
        assert_eq!(min_rto(FABRIC, None), Nanos::from_micros(500));
        assert_eq!(min_rto(FABRIC, Some("dctcp:iw=15KB")), Nanos::from_micros(500));
        assert_eq!(min_rto(FABRIC, Some("dctcp:iw=15KB, min_rto=1s")), Nanos::from_secs(1));
        assert_eq!(min_rto("leaf-spine:spines=1,leaves=1,hosts=2", None), Nanos::from_millis(200));
    }
}
