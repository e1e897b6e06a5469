//! What an operator can do during a run: names to targets and schemes.

use crate::errors::Error;
use pathloom_control::Target;
use pathloom_model::fault::cables_named;
use pathloom_model::spec::nearest;
use pathloom_model::Fabric;
use pathloom_scheme::Scheme;

/// The switch or the cable with this name.
pub fn drain_target(fabric: &Fabric, name: &str) -> Result<Target, Error> {
    if let Some(node) = fabric.find(name) {
        return match fabric.is_host(node) {
            true => Err(Error::Operation(format!("drain: {name} is a host; expected a switch, or a cable a-b"))),
            false => Ok(Target::Switch(node)),
        };
    }
    if !name.contains('-') {
        let known: Vec<&str> = fabric.nodes().iter().map(|node| node.name.as_str()).collect();
        return Err(Error::Node(name.to_owned(), nearest(name, &known).map(str::to_owned)));
    }
    match cables_named(fabric, name).map_err(|problem| Error::Operation(format!("drain: {problem}")))?[..] {
        [link] => Ok(Target::Cable(link)),
        _ => Err(Error::Operation(format!("drain: {name} names several cables; expected one, such as {name}#1"))),
    }
}

/// The central part of a scheme.
pub fn central_scheme(fabric: &Fabric, spec: &str) -> Result<Box<dyn Scheme>, Error> {
    let scheme = crate::registry::registry().parse(spec)?;
    scheme.check_fabric(fabric).map_err(Error::Operation)?;
    // Operators give no seed. Schemes that draw do so from a seed of their own.
    let none = || Error::Operation(format!("scheme {spec}: has no controller, so a running one cannot take it over"));
    scheme.central(1).ok_or_else(none)
}
