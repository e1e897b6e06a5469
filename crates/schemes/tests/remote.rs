//! Schemes in a process of their own: the same events lead to the same actions as in the controller itself.

use crate::support::record::{replay_with, scheme_of};
use crate::support::World;
use pathloom_fabrics::{fabric_from_file_text, fabric_from_spec, to_node_link_json};
use pathloom_model::{LinkId, Nanos, Path as Links};
use pathloom_scheme::remote::{
    Answer, Ask, Greeting, Hello, Host, Order, RemoteScheme, Reply, Request, Told, ViewSender,
};
use pathloom_scheme::{Action, DefaultRoutes, Event, FlowId, Needs, Scheme, State, StateError, View};
use pathloom_schemes::Registry;
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// A scheme, and the same scheme behind lines of text.
struct Both {
    here: Box<dyn Scheme>,
    sender: ViewSender,
    there: Host,
    asked: u64,
}

impl Both {
    fn new(here: Box<dyn Scheme>, there: Box<dyn Scheme>, view: &View) -> Both {
        let hello = Hello {
            protocol: pathloom_scheme::remote::PROTOCOL,
            fabric: serde_json::from_str(&to_node_link_json(&view.fabric)).unwrap(),
            seed: 1,
        };
        let hello: Hello = serde_json::from_str(&serde_json::to_string(&hello).unwrap()).unwrap();
        let fabric = fabric_from_file_text("fabric.json", &hello.fabric.to_string()).unwrap().fabric;
        let greeting = Greeting { protocol: hello.protocol, needs: there.needs() };
        let greeting: Greeting = serde_json::from_str(&serde_json::to_string(&greeting).unwrap()).unwrap();
        assert_eq!(greeting.needs, here.needs());
        Both { here, sender: ViewSender::new(), there: Host::new(there, Arc::new(fabric)), asked: 0 }
    }
}

impl Scheme for Both {
    fn name(&self) -> &'static str {
        self.here.name()
    }

    fn needs(&self) -> Needs {
        self.here.needs()
    }

    fn handle(&mut self, now: Nanos, event: &Event, view: &View, actions: &mut Vec<Action>) {
        self.here.handle(now, event, view, actions);
        self.asked += 1;
        let request = Request { now, view: self.sender.changes(view), restore: None, event: event.clone() };
        let line = serde_json::to_string(&Ask { id: self.asked, request }).unwrap();
        let Ask { id, request } = serde_json::from_str(&line).unwrap();
        let told = Told { id, reply: self.there.handle(request).unwrap() };
        let told: Told = serde_json::from_str(&serde_json::to_string(&told).unwrap()).unwrap();
        assert_eq!((told.id, &told.reply.actions), (self.asked, &*actions), "{event:?} at {now:?}");
        assert_eq!((told.reply.timeout, told.reply.error), (self.here.poll_timeout(), None), "{event:?} at {now:?}");
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        self.here.poll_timeout()
    }

    fn solver(&self) -> fn(&View, &State) -> State {
        self.here.solver()
    }

    fn save(&self) -> State {
        self.here.save()
    }

    fn restore(&mut self, state: State) -> Result<(), StateError> {
        self.here.restore(state)
    }
}

#[test]
fn recorded_events_lead_to_the_same_actions_in_another_process() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/conformance");
    let (mut cases, mut asked) = (0, 0);
    for name in Registry::WithTestSchemes.names() {
        for entry in fs::read_dir(folder.join(name)).unwrap() {
            let file = entry.unwrap().path();
            let text = fs::read_to_string(&file).unwrap_or_default();
            let Ok(spec) = scheme_of(&text) else { continue };
            let parsed = Registry::WithTestSchemes.parse(&spec).unwrap();
            let setup: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
            let seed = setup["setup"]["seed"].as_u64().unwrap();
            let played = replay_with(&text, |world| {
                let [here, there] = [0; 2].map(|_| parsed.central(seed).unwrap());
                world.scheme = Box::new(Both::new(here, there, &world.view));
            });
            let played = played.unwrap_or_else(|problem| panic!("{}: {problem}", file.display()));
            let value = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
            assert!(played.lines().map(value).eq(text.lines().map(value)), "{}", file.display());
            cases += 1;
            asked += text.lines().count() - 1;
        }
    }
    assert!(cases > 30 && asked > 300, "{cases} cases with {asked} lines");
}

/// A scheme in the controller, and the orders that it has given.
struct Remote {
    world: World,
    orders: Vec<(u64, Order)>,
}

impl Remote {
    fn new() -> Remote {
        let mut world = World::new("leaf-spine:spines=2,leaves=2,hosts=1", "ecmp", 1);
        world.scheme = Box::new(RemoteScheme::new("far.py", Needs::NOTHING));
        Remote { world, orders: Vec::new() }
    }

    /// Passes an event. Returns the actions other than orders.
    fn event(&mut self, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        self.world.scheme.handle(self.world.now, &event, &self.world.view, &mut actions);
        let mut others = Vec::new();
        for action in actions {
            match action {
                Action::Solve { ticket, input, .. } => self.orders.push((ticket, Order::from_state(input).unwrap())),
                other => others.push(other),
            }
        }
        others
    }

    fn answer(&mut self, ticket: u64, answer: Answer) -> Vec<Action> {
        self.event(Event::Solved { ticket, answer: answer.to_state() })
    }

    /// The requests since the last call, with their tickets.
    fn asked(&mut self) -> Vec<(u64, Request)> {
        let all = std::mem::take(&mut self.orders).into_iter();
        all.filter_map(|(ticket, order)| match order {
            Order::Ask(request) => Some((ticket, *request)),
            Order::Watch => None,
        })
        .collect()
    }

    /// The ticket of the order to watch the process.
    fn watch(&self) -> u64 {
        self.orders.iter().find(|(_, order)| *order == Order::Watch).unwrap().0
    }
}

fn replied(actions: Vec<Action>, timeout: Option<Nanos>) -> Answer {
    Answer::Reply(Reply { actions, timeout, ..Reply::default() })
}

#[test]
fn actions_are_carried_out_when_they_arrive() {
    let mut remote = Remote::new();
    assert_eq!(remote.event(Event::Started), []);
    let watch = remote.watch();
    let (ticket, request) = remote.asked().remove(0);
    assert!(request.view.fresh && ticket != watch);
    let defaults = Action::SetDefaults(DefaultRoutes::PerHost);
    assert_eq!(remote.answer(ticket, replied(vec![defaults.clone()], Some(Nanos(7)))), [defaults]);
    assert_eq!(remote.world.scheme.poll_timeout(), Some(Nanos(7)));
    // The time of a reply does not count if a later event is under way.
    remote.event(Event::Timeout);
    assert_eq!(remote.world.scheme.poll_timeout(), None);
    remote.event(Event::RatesMeasured { period: Nanos(1) });
    let asked = remote.asked();
    assert!(!asked[0].1.view.fresh);
    remote.answer(asked[0].0, replied(Vec::new(), Some(Nanos(7))));
    assert_eq!(remote.world.scheme.poll_timeout(), None);
    remote.answer(asked[1].0, replied(Vec::new(), Some(Nanos(9))));
    assert_eq!(remote.world.scheme.poll_timeout(), Some(Nanos(9)));
    // A job that the process has solved is answered at once.
    let job = Action::Solve { ticket: 3, input: State("x".into()), modelled: Nanos(5) };
    remote.event(Event::RatesMeasured { period: Nanos(1) });
    let ticket = remote.asked()[0].0;
    assert_eq!(remote.answer(ticket, replied(vec![job], None)), []);
    assert_eq!(remote.asked()[0].1.event, Event::Solved { ticket: 3, answer: State("x".into()) });
}

#[test]
fn impossible_actions_are_dropped_and_counted() {
    let mut remote = Remote::new();
    let hosts = remote.world.view.fabric.hosts().to_vec();
    remote.world.add_flow(FlowId(1), (hosts[0], 0), (hosts[1], 0), 5);
    remote.event(Event::Started);
    let ticket = remote.asked()[0].0;
    let route = |flow, links: &[u32]| Action::Route {
        flow: FlowId(flow),
        path: Links::new(links.iter().map(|&link| LinkId(link)).collect::<Vec<_>>()),
        rate_bps: None,
    };
    let fabric = remote.world.view.fabric.clone();
    let tors = fabric.tors();
    let spine = fabric.find("c0").or(fabric.find("s0")).unwrap_or(fabric.link(fabric.node(tors[0]).ports[0]).to);
    let hop = |from, to| fabric.link_between(from, to).unwrap().0;
    let good = route(1, &[hop(tors[0], spine), hop(spine, tors[1])]);
    let wrong = [
        route(2, &[]),
        route(1, &[]),
        route(1, &[99_999]),
        route(1, &[hop(tors[0], spine)]),
        Action::Unroute { flow: FlowId(9) },
    ];
    let all: Vec<Action> = wrong.into_iter().chain([good.clone()]).collect();
    assert_eq!(remote.answer(ticket, replied(all, None)), [good]);
    assert_eq!(remote.world.scheme.sizes(), [("refused actions", 5)]);
}

#[test]
fn a_new_process_gets_the_whole_view_and_all_long_flows() {
    let mut remote = Remote::new();
    let hosts = remote.world.view.fabric.hosts().to_vec();
    remote.event(Event::Started);
    let watch = remote.watch();
    let first = remote.asked()[0].0;
    let state = State(serde_json::json!({"seen": 4}));
    let reply = Reply { state: Some(state.clone()), timeout: Some(Nanos(5)), ..Reply::default() };
    remote.answer(first, Answer::Reply(reply));
    remote.world.add_flow(FlowId(1), (hosts[0], 0), (hosts[1], 0), 5);
    remote.world.view.flows.get_mut(&FlowId(1)).unwrap().long = true;
    remote.event(Event::FlowArrived { flow: FlowId(1) });
    let late = remote.asked()[0].0;
    // Without a process, nothing is asked.
    remote.answer(late, Answer::Lost);
    assert_eq!(remote.world.scheme.poll_timeout(), None);
    remote.event(Event::RatesMeasured { period: Nanos(1) });
    assert!(remote.asked().is_empty());
    remote.answer(watch, Answer::Up);
    assert_ne!(remote.watch(), watch);
    let asked = remote.asked();
    let events: Vec<&Event> = asked.iter().map(|(_, request)| &request.event).collect();
    assert_eq!(events, [&Event::Started, &Event::FlowAdopted { flow: FlowId(1) }]);
    assert_eq!((asked[0].1.view.fresh, asked[0].1.view.flows.len()), (true, 1));
    assert_eq!((asked[0].1.restore.clone(), asked[1].1.restore.clone()), (Some(state.clone()), None));
    // What the process before it answers has no effect.
    let late_action = replied(vec![Action::Measure], None);
    assert_eq!(remote.answer(late, late_action.clone()), []);
    assert_eq!(remote.answer(asked[0].0, late_action), [Action::Measure]);
    assert_eq!(remote.world.scheme.save(), state);
}

#[test]
fn a_view_of_another_fabric_is_refused() {
    let small = Arc::new(fabric_from_spec("dumbbell").unwrap());
    let mut large = View::new(Arc::new(fabric_from_spec("fat-tree:k=4").unwrap()));
    let last = LinkId(large.fabric.links().len() as u32 - 2);
    large.links.set_cable(last, false);
    let ecmp = Registry::Shipped.parse("ecmp").unwrap().central(1).unwrap();
    let request =
        Request { now: Nanos(1), view: ViewSender::new().changes(&large), restore: None, event: Event::Started };
    let problem = Host::new(ecmp, small).handle(request).unwrap_err();
    assert!(problem.contains("fabric of the hello"), "{problem}");
}

/// As after a reload: the state is that of an older file.
#[test]
fn a_state_that_cannot_be_restored_is_reported_and_the_event_handled() {
    let fabric = Arc::new(fabric_from_spec("leaf-spine:spines=2,leaves=2,hosts=1").unwrap());
    let handle = |restore| {
        let scheme = Registry::Shipped.parse("hedera").unwrap().central(1).unwrap();
        let view = ViewSender::new().changes(&View::new(fabric.clone()));
        let request = Request { now: Nanos(1), view, restore, event: Event::Started };
        Host::new(scheme, fabric.clone()).handle(request).unwrap()
    };
    let (plain, other) = (handle(None), handle(Some(State("of another file".into()))));
    assert!(plain.error.is_none() && other.error.is_some(), "{other:?}");
    assert!(!plain.actions.is_empty() && plain.actions == other.actions, "{other:?}");
}
