//! `loss=0.001` or `loss=a0_0-c0:0.01/c3:0.001`: cables that lose packets from the start.

use pathloom_model::fault::{cables_named, parse_share};
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::{Fabric, LinkId};
use std::collections::BTreeMap;

/// Cables by name (`None` means all), and how many of 10^9 packets are lost in each direction. If two entries name a
/// cable, the later one applies.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Losses(Vec<(Option<String>, u32)>);

impl Losses {
    /// Parses the key `loss`.
    pub(super) fn read(spec: &Spec) -> Result<Losses, SpecError> {
        let Some(text) = spec.text_of("loss") else { return Ok(Losses::default()) };
        let entry = |entry: &str| {
            let (cable, share) = entry.rsplit_once(':').map_or((None, entry), |(cable, share)| (Some(cable), share));
            let per_billion = parse_share(share).map_err(|problem| {
                spec.error(format!(
                    "loss: {problem}; expected one for all cables, or CABLE:SHARE, several with / between them, such as \
                     0.001 or a0_0-c0:0.01/c3:0.001"
                ))
            })?;
            Ok((cable.map(|cable| cable.trim().to_owned()), per_billion))
        };
        text.split('/').map(|part| entry(part.trim())).collect::<Result<_, _>>().map(Losses)
    }

    /// Returns the fabric with these losses. They are added to the losses of the fabric, and replace those of the
    /// same links.
    ///
    /// # Errors
    /// No cable has the given name.
    pub(super) fn apply(&self, spec: &Spec, fabric: Fabric) -> Result<Fabric, SpecError> {
        let mut losses: BTreeMap<LinkId, u32> = fabric.lossy_links().iter().copied().collect();
        for (name, per_billion) in &self.0 {
            let cables = match name {
                None => fabric.cables().collect(),
                Some(name) => cables_named(&fabric, name).map_err(|problem| spec.error(format!("loss: {problem}")))?,
            };
            losses.extend(cables.into_iter().flat_map(|link| [link, link.reverse()]).map(|link| (link, *per_billion)));
        }
        Ok(fabric.with_losses(losses.into_iter().collect()))
    }
}

#[cfg(test)]
mod tests {
    use crate::fabric_from_spec;
    use pathloom_model::Fabric;

    /// Returns the names of the ends of each lossy link, and the share that it loses.
    fn losses(fabric: &Fabric) -> Vec<(String, f64)> {
        let name = |node| fabric.node(node).name.as_str();
        let row = |&(link, per_billion): &(pathloom_model::LinkId, u32)| {
            let ends = fabric.link(link);
            (format!("{}-{}", name(ends.from), name(ends.to)), f64::from(per_billion) / 1e9)
        };
        fabric.lossy_links().iter().map(row).collect()
    }

    #[test]
    fn a_share_alone_covers_all_cables_and_later_entries_win() {
        let fabric = fabric_from_spec("diamond:hosts=1,loss=0.25/c1:0/c0-e1:1").unwrap();
        let mut found = losses(&fabric);
        found.sort_by(|a, b| a.0.cmp(&b.0));
        let expected = [
            ("c0-e0", 0.25),
            ("c0-e1", 1.0),
            ("e0-c0", 0.25),
            ("e0-h0", 0.25),
            ("e1-c0", 1.0),
            ("e1-h1", 0.25),
            ("h0-e0", 0.25),
            ("h1-e1", 0.25),
        ];
        assert_eq!(found, expected.map(|(name, share)| (name.to_owned(), share)));
        assert_eq!(losses(&fabric_from_spec("diamond:loss=e1-c0:1e-9").unwrap()).len(), 2);
        assert!(fabric_from_spec("diamond").unwrap().lossy_links().is_empty());
    }

    #[test]
    fn errors_name_the_problem() {
        for (value, words) in [
            ("", "not key=value"),
            ("2", "`2` is not a share of packets from 0 to 1"),
            ("1%", "`1%` is not a share"),
            ("-0.1", "`-0.1` is not a share"),
            ("nan", "`nan` is not a share"),
            ("c3", "`c3` is not a share"),
            ("c3:", "`` is not a share"),
            ("0.1/", "`` is not a share"),
            ("c3:0.1/c7:0.1", "no node is called `c7`"),
            ("e0_0-c0:0.1", "not neighbours"),
        ] {
            let problem = fabric_from_spec(&format!("fat-tree:k=4,loss={value}")).unwrap_err().to_string();
            assert!(
                problem.contains("loss") && problem.contains(words) && !problem.contains('\n'),
                "{value}: {problem}"
            );
        }
    }
}
