//! A scheme that does what a test tells it, when the test tells it, and records the events that it gets.

use pathloom_model::Nanos;
use pathloom_scheme::{Action, Event, Needs, Scheme, State, StateError, View};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// State that the test and its scheme share.
#[derive(Debug, Default)]
struct Shared {
    heard: Vec<(Nanos, Event)>,
    due: BTreeMap<Nanos, Vec<Action>>,
    told: Vec<(Nanos, Action)>,
}

/// The test's side of a scripted scheme: it gives the scheme its actions, and reads the events that the scheme got.
#[derive(Clone, Debug, Default)]
pub struct Script(Arc<Mutex<Shared>>);

impl Script {
    /// An empty script.
    pub fn new() -> Script {
        Script::default()
    }

    /// Makes the scheme request this action at that time.
    pub fn at(&self, at: Nanos, action: Action) {
        let mut shared = self.lock();
        shared.told.push((at, action.clone()));
        shared.due.entry(at).or_default().push(action);
    }

    /// A new script with all actions that this one was ever given, none of them requested yet.
    pub fn from_the_start(&self) -> Script {
        let script = Script::new();
        let told = self.lock().told.clone();
        told.into_iter().for_each(|(at, action)| script.at(at, action));
        script
    }

    /// All events that the scheme got so far, with their times.
    pub fn heard(&self) -> Vec<(Nanos, Event)> {
        self.lock().heard.clone()
    }

    /// The events that the scheme got, without their times.
    pub fn events(&self) -> Vec<Event> {
        self.lock().heard.iter().map(|(_, event)| event.clone()).collect()
    }

    /// Clears the recorded events.
    pub fn clear(&self) {
        self.lock().heard.clear();
    }

    /// A scheme that follows this script.
    pub fn scheme(&self, needs: Needs) -> Box<dyn Scheme> {
        Box::new(Scripted { script: self.clone(), needs, on_start: Vec::new() })
    }

    /// A scheme that follows this script, and requests these actions when it starts.
    pub fn scheme_with(&self, needs: Needs, on_start: Vec<Action>) -> Box<dyn Scheme> {
        Box::new(Scripted { script: self.clone(), needs, on_start })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

struct Scripted {
    script: Script,
    needs: Needs,
    on_start: Vec<Action>,
}

impl Scheme for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn needs(&self) -> Needs {
        self.needs
    }

    fn handle(&mut self, now: Nanos, event: &Event, _view: &View, actions: &mut Vec<Action>) {
        let mut shared = self.script.lock();
        match event {
            Event::Timeout => {
                while let Some(entry) = shared.due.first_entry().filter(|entry| *entry.key() <= now) {
                    actions.extend(entry.remove());
                }
            }
            event => {
                shared.heard.push((now, event.clone()));
                if *event == Event::Started {
                    actions.extend(self.on_start.iter().cloned());
                }
            }
        }
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        self.script.lock().due.keys().next().copied()
    }

    fn save(&self) -> State {
        State("scripted".into())
    }

    fn restore(&mut self, state: State) -> Result<(), StateError> {
        if state == State("scripted".into()) {
            return Ok(());
        }
        Err(StateError { scheme: "scripted", problem: format!("unexpected state {}", state.0) })
    }
}
