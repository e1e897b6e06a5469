//! Applications that run beside the flows of a scheme: they request paths, claim them and open connections.

use pathloom_control::cookies::is_bound;
use pathloom_control::{
    AssignError, Assigned, AssignmentId, AssignmentLimits, ClaimKey, Config, Input, Output, Owner, PathRequest,
    PathSearch,
};
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::{Headers, Nanos, Path, TCP_ACK, TCP_FIN, TCP_SYN};
use pathloom_scheme::{FlowId, Needs};
use pathloom_testkit::{ms, World};
use std::sync::Arc;

pub(crate) const LIMITS: AssignmentLimits = AssignmentLimits {
    most: 6,
    most_per_owner: 4,
    most_paths: 8,
    most_claims: 8,
    claim_timeout: Nanos::from_secs(2),
    lifetime: Nanos::from_secs(20),
    longest_lifetime: Nanos::from_secs(20),
};

/// A world whose first flow is known to the scheme, and the connections that applications open beside it.
pub(crate) struct Applications {
    pub world: World,
    request: u64,
}

impl Applications {
    pub(crate) fn new(fabric: Arc<pathloom_model::Fabric>, needs: Needs, seed: u64) -> Applications {
        Applications::with_limits(fabric, needs, LIMITS, seed)
    }

    pub(crate) fn with_limits(
        fabric: Arc<pathloom_model::Fabric>,
        needs: Needs,
        assignments: AssignmentLimits,
        seed: u64,
    ) -> Applications {
        let config = Config { assignments, ..Config::default() };
        Applications { world: World::new(fabric, needs, config, seed), request: 0 }
    }

    pub(crate) fn fat_tree(needs: Needs) -> Applications {
        Applications::new(Arc::new(fabric_from_spec("fat-tree:k=4").unwrap()), needs, 1)
    }

    /// Sends an input to the controller and returns its answer.
    pub(crate) fn ask(&mut self, input: impl FnOnce(u64) -> Input) -> Output {
        self.request += 1;
        let before = self.world.outputs().count();
        self.world.network.give_input(input(self.request));
        let is_answer = |output: &&Output| {
            matches!(output, Output::Assigned { .. } | Output::Claimed { .. } | Output::Released { .. })
        };
        self.world.outputs().skip(before).find(is_answer).expect("every request has an answer").clone()
    }

    pub(crate) fn assign(&mut self, who: &str, count: u32, search: PathSearch) -> Result<Assigned, AssignError> {
        let (src, dst) = (self.world.flow.five_tuple.src(), self.world.flow.five_tuple.dst());
        let paths = PathRequest { src, dst, count, search, lifetime: None };
        let answer = self.ask(|request| Input::AssignPaths { request, owner: owner(who), paths });
        let Output::Assigned { answer, .. } = answer else { panic!("{answer:?}") };
        answer
    }

    pub(crate) fn claim(&mut self, who: &str, assignment: AssignmentId, src_port: u16) -> Result<Path, AssignError> {
        let (src, dst) = (self.world.flow.five_tuple.src(), self.world.flow.five_tuple.dst());
        self.claim_as(who, assignment, ClaimKey::to_come(src, dst, src_port))
    }

    pub(crate) fn claim_as(
        &mut self,
        who: &str,
        assignment: AssignmentId,
        connection: ClaimKey,
    ) -> Result<Path, AssignError> {
        self.claim_to(who, assignment, connection, None)
    }

    /// Claims a path for a connection that is about to be opened to a port.
    pub(crate) fn claim_to(
        &mut self,
        who: &str,
        assignment: AssignmentId,
        connection: ClaimKey,
        opens_to: Option<u16>,
    ) -> Result<Path, AssignError> {
        let owner = owner(who);
        let answer =
            self.ask(|request| Input::ClaimPath { request, owner, assignment, connection, path: None, opens_to });
        let Output::Claimed { answer, .. } = answer else { panic!("{answer:?}") };
        answer.map(|mut claimed| claimed.paths.remove(0))
    }

    pub(crate) fn release(&mut self, who: &str, assignment: AssignmentId) -> Result<(), AssignError> {
        let answer = self.ask(|request| Input::ReleasePaths { request, owner: owner(who), assignment });
        let Output::Released { answer, .. } = answer else { panic!("{answer:?}") };
        answer
    }

    /// Headers of a connection from a port, without a label.
    pub(crate) fn packet(&self, src_port: u16) -> Headers {
        Headers { tcp_flags: TCP_ACK, ..Headers::plain(self.world.flow.five_tuple.with_src_port(src_port)) }
    }

    /// Opens a connection, which sends in both directions from now on.
    pub(crate) fn open(&mut self, src_port: u16) {
        let forth = self.packet(src_port);
        let back = Headers { five_tuple: forth.five_tuple.reverse(), ..forth };
        self.world.network.send(Headers { tcp_flags: TCP_SYN, ..forth });
        self.world.traffic(ms(5));
        self.world.network.send(Headers { tcp_flags: TCP_SYN | TCP_ACK, ..back });
        self.world.flows.extend([forth, back]);
    }

    /// Stops the packets of a connection. If `says_so`, its last packet is sent before.
    pub(crate) fn close(&mut self, src_port: u16, says_so: bool) {
        let forth = self.packet(src_port);
        let five_tuple = forth.five_tuple;
        self.world.flows.retain(|headers| ![five_tuple, five_tuple.reverse()].contains(&headers.five_tuple));
        if says_so {
            self.world.network.send(Headers { tcp_flags: TCP_FIN | TCP_ACK, ..forth });
        }
    }

    /// Returns the switches that a packet visits now.
    pub(crate) fn way(&mut self, headers: Headers) -> Vec<pathloom_model::NodeId> {
        let sent = self.world.network.send(headers);
        self.world.pass(ms(100));
        self.world.network.packets[sent].switches.clone()
    }

    /// Asserts that both directions of a connection visit the switches of this path.
    pub(crate) fn takes(&mut self, src_port: u16, path: &Path) {
        let forth = self.packet(src_port);
        let mut switches = path.switches(&self.world.network.fabric, self.world.tor());
        assert_eq!(self.way(forth), switches);
        switches.reverse();
        assert_eq!(self.way(Headers { five_tuple: forth.five_tuple.reverse(), ..forth }), switches);
    }

    pub(crate) fn bound(&self) -> Vec<FlowId> {
        self.world.network.controller.view().flows.keys().copied().filter(|&id| is_bound(id)).collect()
    }

    /// Ends everything, and asserts that no rule remains and no packet was lost.
    pub(crate) fn nothing_is_lost_or_left(mut self) {
        self.world.nothing_is_lost_or_left();
        self.is_empty();
    }

    pub(crate) fn is_empty(&self) {
        let all = self.world.network.controller.assignments();
        assert_eq!((all.len(), all.waiting_claims(), all.connections()), (0, 0, 0));
    }
}

pub(crate) fn owner(who: &str) -> Owner {
    Owner(who.into())
}
