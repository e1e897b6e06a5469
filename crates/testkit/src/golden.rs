//! Recorded cases: stimuli to a network, and what the controller then told its scheme and its switches.
//!
//! A case is a file of JSON lines. The first one has the set-up. Each other line has a time, and either a stimulus
//! (`packet`, `counted`, `cable`, `session`, `input`, or an `action` that the scheme requests) or a result (an
//! `event` for the scheme, or an `output` of the controller). With the environment variable `PATHLOOM_BLESS` set to
//! 1, files are rewritten from what happens; otherwise they are compared with it.

use crate::network::{Network, Timing};
use crate::scripted::Script;
use pathloom_control::{Config, Controller, Input, Message, Output, SOURCE_COOKIE, SOURCE_COOKIE_MASK};
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::rules::Match;
use pathloom_model::{FiveTuple, Headers, Nanos};
use pathloom_scheme::{Action, DefaultRoutes, Event, Needs};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

/// The first line of a case.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Setup {
    fabric: String,
    needs: Needs,
    defaults: DefaultRoutes,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    config: Option<Config>,
    /// Whether the outputs that set the fabric up are recorded as well.
    #[serde(default)]
    from_the_start: bool,
}

/// Any other line of a case.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Line {
    at: Nanos,
    #[serde(flatten)]
    what: What,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum What {
    /// A host sends a packet.
    Packet(Headers),
    /// The rule that counts a flow counts this many bytes more.
    Counted { five_tuple: FiveTuple, bytes: u64 },
    /// The first cable between two switches, by name, fails or comes back.
    Cable { ends: (String, String), up: bool },
    /// The session to a switch ends or is established.
    Session { switch: String, up: bool },
    /// The controller gets this input.
    Input(Input),
    /// The scheme requests this action.
    Action(Action),
    /// The scheme got this event.
    Event(Event),
    /// The controller produced this output.
    Output(Output),
}

/// Why a case is wrong.
#[derive(Debug)]
pub struct CaseError(pub String);

impl std::fmt::Display for CaseError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CaseError {}

/// Checks all cases (`*.jsonl`) of a folder, in order of name, and returns their number. A folder without cases is an
/// error.
pub fn check_folder(folder: &FilePath) -> Result<usize, CaseError> {
    let failed = |problem: std::io::Error| CaseError(format!("{}: {problem}", folder.display()));
    let mut cases: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        cases.push(entry.map_err(failed)?.path());
    }
    cases.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    cases.sort();
    if cases.is_empty() {
        return Err(CaseError(format!("{}: no *.jsonl file in this folder", folder.display())));
    }
    cases.iter().try_for_each(|case| check_case(case))?;
    Ok(cases.len())
}

/// Checks one case, or rewrites it if `PATHLOOM_BLESS` is 1.
pub fn check_case(file: &FilePath) -> Result<(), CaseError> {
    let error = |problem: String| CaseError(format!("{}: {problem}", file.display()));
    let text = fs::read_to_string(file).map_err(|problem| error(problem.to_string()))?;
    let played = play_case(&text).map_err(error)?;
    if std::env::var("PATHLOOM_BLESS").is_ok_and(|value| value == "1") {
        return fs::write(file, played).map_err(|problem| error(problem.to_string()));
    }
    let value = |line: &str| serde_json::from_str::<serde_json::Value>(line).ok();
    for (index, (recorded, happened)) in text.lines().zip(played.lines()).enumerate() {
        if value(recorded) != value(happened) {
            let line = index + 1;
            return Err(error(format!("line {line} has\n  {recorded}\nbut this happened:\n  {happened}")));
        }
    }
    match (text.lines().count(), played.lines().count()) {
        (recorded, happened) if recorded != happened => {
            Err(error(format!("{recorded} lines recorded, but {happened} happened; PATHLOOM_BLESS=1 rewrites them")))
        }
        _ => Ok(()),
    }
}

/// Plays the stimuli of a case. Returns the text of the case with what happened.
pub fn play_case(text: &str) -> Result<String, String> {
    let mut lines = text.lines();
    let setup: Setup = lines
        .next()
        .ok_or_else(|| "the case is empty; expected the set-up in the first line".to_owned())
        .and_then(|line| serde_json::from_str(line).map_err(|problem| format!("line 1: {problem}")))?;
    let fabric = Arc::new(fabric_from_spec(&setup.fabric).map_err(|problem| problem.to_string())?);
    let script = Script::new();
    let scheme = script.scheme_with(setup.needs, vec![Action::SetDefaults(setup.defaults)]);
    let controller = Controller::new(setup.config.clone().unwrap_or_default(), fabric.clone(), scheme);
    let mut player = Player {
        network: Network::new(fabric, controller, Timing::NONE, 1),
        script,
        written: vec![to_json(&setup)?],
        events: 0,
        outputs: 0,
    };
    player.network.start();
    if !setup.from_the_start {
        player.outputs = player.network.log.len();
    }
    player.catch_up()?;
    for (index, line) in lines.enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = |problem: String| format!("line {}: {problem}", index + 2);
        let line: Line = serde_json::from_str(line).map_err(|problem| wrong(problem.to_string()))?;
        player.run_until(line.at)?;
        if !matches!(line.what, What::Event(_) | What::Output(_)) {
            player.written.push(to_json(&line)?);
            player.apply(line.what).map_err(wrong)?;
        }
    }
    player.run_until(player.network.now())?;
    Ok(player.written.join("\n") + "\n")
}

fn to_json(value: &impl Serialize) -> Result<String, String> {
    serde_json::to_string(value).map_err(|problem| problem.to_string())
}

struct Player {
    network: Network,
    script: Script,
    written: Vec<String>,
    /// Number of events, and number of records of the log, that have been written.
    events: usize,
    outputs: usize,
}

impl Player {
    fn run_until(&mut self, at: Nanos) -> Result<(), String> {
        self.network.run_until(at.max(self.network.now()));
        self.catch_up()
    }

    /// Writes what has happened, in order of time. At the same time, events for the scheme come first.
    fn catch_up(&mut self) -> Result<(), String> {
        let heard = self.script.heard();
        let events = heard[self.events..].iter().map(|(at, event)| Line { at: *at, what: What::Event(event.clone()) });
        let outputs = self.network.log[self.outputs..].iter().filter_map(|record| match &record.message {
            Message::Output(output) => Some(Line { at: record.at, what: What::Output(output.clone()) }),
            Message::Input(_) | Message::Scheme(_) => None,
        });
        let mut news: Vec<Line> = events.chain(outputs).collect();
        news.sort_by_key(|line| line.at);
        (self.events, self.outputs) = (heard.len(), self.network.log.len());
        news.iter().try_for_each(|line| to_json(line).map(|line| self.written.push(line)))
    }

    fn apply(&mut self, what: What) -> Result<(), String> {
        let network = &mut self.network;
        let find = |network: &Network, name: &str| {
            network.fabric.find(name).ok_or_else(|| format!("no node is called {name}"))
        };
        match what {
            What::Input(input) => network.give_input(input),
            What::Packet(headers) => {
                let src = headers.five_tuple.src();
                network.fabric.attachment(src).ok_or_else(|| format!("no host has the address {src}"))?;
                network.send(headers);
            }
            What::Counted { five_tuple, bytes } => count(network, five_tuple, bytes)?,
            What::Cable { ends: (a, b), up } => {
                let (from, to) = (find(network, &a)?, find(network, &b)?);
                let link = network.fabric.link_between(from, to);
                network.set_cable(link.ok_or_else(|| format!("{a} and {b} are not neighbours"))?, up);
            }
            What::Session { switch, up } => {
                let switch = find(network, &switch)?;
                if up {
                    network.connect(switch);
                } else {
                    network.disconnect(switch);
                }
            }
            What::Action(action) => self.script.at(network.now(), action),
            What::Event(_) | What::Output(_) => {}
        }
        self.run_until(Nanos::ZERO)
    }
}

/// The rule that acts on a flow at its source ToR counts this many bytes more.
fn count(network: &mut Network, five_tuple: FiveTuple, bytes: u64) -> Result<(), String> {
    let now = network.now();
    let entries = network.switches.iter_mut().flat_map(|switch| &mut switch.entries);
    let acting = entries
        .filter(|entry| entry.rule.cookie & SOURCE_COOKIE_MASK == SOURCE_COOKIE)
        .filter(|entry| entry.rule.matches == Match::five_tuple(five_tuple))
        .max_by_key(|entry| entry.rule.priority)
        .ok_or_else(|| format!("no rule counts {five_tuple:?}"))?;
    acting.counters.bytes += bytes;
    acting.used = now;
    Ok(())
}
