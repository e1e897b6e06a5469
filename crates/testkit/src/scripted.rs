//! A scheme that does what a test tells it, when it is told to, and remembers what it heard.

use pathloom_model::Nanos;
use pathloom_scheme::{Action, Event, Needs, Scheme, State, StateError, View};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// What the test and its scheme share.
#[derive(Debug, Default)]
struct Shared {
    heard: Vec<(Nanos, Event)>,
    due: BTreeMap<Nanos, Vec<Action>>,
    told: Vec<(Nanos, Action)>,
}

/// The test's end: it tells the scheme what to do and asks what it heard.
#[derive(Clone, Debug, Default)]
pub struct Script(Arc<Mutex<Shared>>);

impl Script {
    /// An empty script.
    pub fn new() -> Script {
        Script::default()
    }

    /// The scheme is to want this at that time.
    pub fn at(&self, at: Nanos, action: Action) {
        let mut shared = self.lock();
        shared.told.push((at, action.clone()));
        shared.due.entry(at).or_default().push(action);
    }

    /// A script of everything this one was ever told, as it was before any of it came true.
    pub fn from_the_start(&self) -> Script {
        let script = Script::new();
        let told = self.lock().told.clone();
        told.into_iter().for_each(|(at, action)| script.at(at, action));
        script
    }

    /// All it heard so far.
    pub fn heard(&self) -> Vec<(Nanos, Event)> {
        self.lock().heard.clone()
    }

    /// The events it heard, without their times.
    pub fn events(&self) -> Vec<Event> {
        self.lock().heard.iter().map(|(_, event)| event.clone()).collect()
    }

    /// Forgets what it heard.
    pub fn clear(&self) {
        self.lock().heard.clear();
    }

    /// A scheme that follows this script.
    pub fn scheme(&self, needs: Needs) -> Box<dyn Scheme> {
        Box::new(Scripted { script: self.clone(), needs, on_start: Vec::new() })
    }

    /// A scheme that follows this script and wants this when it starts.
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
