//! Configurations that are refused, and the defaults of those that are accepted.

use super::*;

fn problem(text: &str) -> String {
    check(text, Path::new("")).unwrap_err()
}

fn cluster(more: &str) -> String {
    format!("{LEAST}[cluster]\nname = \"c1\"\n{more}")
}

const LEAST: &str = "[fabric]\nspec = \"fat-tree:k=4\"\n";

#[test]
fn the_fabric_is_the_only_required_setting() {
    let checked = check(LEAST, Path::new("")).unwrap();
    assert_eq!(checked.datapaths.len(), 20);
    assert!(checked.datapaths.iter().all(|(&dpid, node)| dpid == u64::from(node.0) + 1));
}

#[test]
fn datapaths_can_be_named() {
    let checked = check(&format!("{LEAST}datapaths = {{ e0_0 = \"00:00:00:00:00:00:ab:cd\" }}"), Path::new(""));
    let checked = checked.unwrap();
    assert_eq!(checked.datapaths[&0xabcd], checked.fabric.find("e0_0").unwrap());
}

#[test]
fn risky_settings_cause_warnings() {
    let warnings = |more: &str| check(&format!("{LEAST}{more}"), Path::new("")).unwrap().warnings();
    assert_eq!(warnings(""), [""; 0]);
    for address in ["0.0.0.0:6653", "[::]:6653", "192.0.2.1:6653"] {
        let all = warnings(&format!("[listen]\naddress = \"{address}\""));
        assert!(all.len() == 1 && all[0].contains("listen.tls") && all[0].contains(address), "{all:?}");
    }
    let all = warnings("[discovery]\nhosts = \"configured\"");
    assert!(all.len() == 1 && all[0].contains("ARP"), "{all:?}");
    let all =
        warnings("[discovery]\nprefixes = [\"0.0.0.0/0\"]\n[[addresses]]\nat = \"h0\"\nprefixes = [\"0.0.0.0/0\"]");
    assert!(all.len() == 1 && all[0].contains("router"), "{all:?}");
}

#[test]
fn hosts_are_learnt_unless_cables_are_not_probed() {
    let hosts = |more: &str| check(&format!("{LEAST}{more}"), Path::new("")).unwrap().config.discovery.hosts();
    assert_eq!(hosts(""), Hosts::Learn);
    assert_eq!(hosts("[discovery]\nlinks = \"off\""), Hosts::Configured);
}

#[test]
fn invalid_settings_are_named_with_their_place() {
    let cases = [
        ("", ["fabric", ""]),
        ("[fabric]\nspec = \"fat-tre:k=4\"", ["fat-tree", "fabric.spec"]),
        ("[fabric]\nspec = \"missing.json\"", ["missing.json", "fabric.spec"]),
        ("[fabric]\nspec = \"fat-tree:k=4,addresses=ipv6\"", ["addresses=ipv6", "fabric.spec"]),
        (&format!("{LEAST}colour = 1"), ["colour", "line 3"]),
        (&format!("{LEAST}[sesions]\nx = 1"), ["sesions", "line 3"]),
        (&format!("{LEAST}[sessions]\necho_interval = \"5\""), ["`5`", "line 4"]),
        (&format!("{LEAST}[sessions]\necho_interval = \"20s\""), ["echo_timeout", "longer"]),
        (&format!("{LEAST}[scheme]\nspec = \"ecpm\""), ["ecmp", "scheme.spec"]),
        (&format!("{LEAST}[log]\nlevel = \"loud\""), ["loud", "debug"]),
        (&cluster("endpoints = []"), ["cluster.endpoints", "http://"]),
        (&cluster("endpoints = [\"10.0.0.1:2379\"]"), ["cluster.endpoints", "10.0.0.1:2379"]),
        (&cluster("endpoints = [\"http://10.0.0.1\"]"), ["cluster.endpoints", "HOST:PORT"]),
        (&cluster("endpoints = [\"https://etcd:2379\"]"), ["cluster.ca", "https://"]),
        (&cluster("endpoints = [\"https://etcd:2379\"]\nca = \"none.pem\""), ["cluster.ca", "none.pem"]),
        (&cluster("endpoints = [\"http://etcd:2379\"]\nca = \"none.pem\""), ["cluster.ca", "https://"]),
        (&cluster("endpoints = [\"http://etcd:2379\"]\nttl = \"1s\""), ["cluster.ttl", "2s"]),
        (&cluster("endpoints = [\"http://etcd:2379\"]\nttl = \"2500ms\""), ["cluster.ttl", "whole"]),
        (&cluster("endpoints = [\"http://etcd:2379\"]\nprefix = \"/p\""), ["cluster.prefix", "/p"]),
        (&cluster("endpoints = [\"http://etcd:2379\"]\nuser = \"u\""), ["password_file", "together"]),
        (&cluster("endpoints = [\"http://etcd:2379\"]\n[state]\ndirectory = \"d\""), ["state.directory", "[cluster]"]),
        (&format!("{LEAST}[cluster]\nendpoints = [\"http://etcd:2379\"]"), ["name", "line"]),
        (&format!("{LEAST}[cluster]\nname = \"a/b\"\nendpoints = [\"http://etcd:2379\"]"), ["cluster.name", "a/b"]),
        (&format!("{LEAST}datapaths = {{ e9_9 = \"1\" }}"), ["e9_9", "no switch"]),
        (&format!("{LEAST}datapaths = {{ e0_0 = \"xyz\" }}"), ["xyz", "hexadecimal"]),
        (&format!("{LEAST}datapaths = {{ e0_0 = \"2\", e0_1 = \"2\" }}"), ["e0_0", "e0_1"]),
        (&format!("{LEAST}[listen]\naddress = \"localhost\""), ["line 4", ""]),
        (&format!("{LEAST}[hosts]\nagents = 0"), ["hosts", "more than 0"]),
        (&format!("{LEAST}[hosts]\ntokens = \"/missing/t\""), ["hosts.tokens", "/missing/t"]),
        (
            &format!("{LEAST}[hosts]\ntls = {{ certificate = \"/missing/c\", key = \"k\" }}"),
            ["hosts.tls", "/missing/c"],
        ),
        (&format!("{LEAST}[reconcile]\nperiod = \"31s\""), ["reconcile.period", "30s"]),
        (&format!("{LEAST}[reconcile]\nforeign = \"hide\""), ["`hide`", "remove"]),
        (&format!("{LEAST}[discovery]\nlinks = \"on\""), ["`on`", "verify"]),
        (&format!("{LEAST}[discovery]\nprobe_interval = \"0s\""), ["discovery.probe_interval", "60s"]),
        (&format!("{LEAST}[discovery]\nlinks = \"off\"\nhosts = \"learn\""), ["discovery", "verify"]),
        (&format!("{LEAST}[discovery]\nprefixes = [\"10.0.0.0/40\"]"), ["discovery.prefixes", "10.0.0.0/40"]),
        (&format!("{LEAST}[[addresses]]\nat = \"h99\"\nprefixes = []"), ["addresses.h99", "no host"]),
        (&format!("{LEAST}[api]\nadress = \"127.0.0.1:1\""), ["adress", "line 4"]),
        (&format!("{LEAST}[api]\naddress = \"127.0.0.1:1\""), ["api.tokens", "needed"]),
        (
            &format!("{LEAST}[api]\naddress = \"127.0.0.1:1\"\ntokens = \"/missing/tokens\""),
            ["/missing/tokens", "pathloom controller token"],
        ),
        (&format!("{LEAST}[listen.tls]\ncertificate = \"c\"\nkey = \"k\""), ["listen.tls.client_ca", "missing"]),
        (
            &format!("{LEAST}[listen.tls]\ncertificate = \"/missing/c\"\nkey = \"k\"\nclient_ca = \"a\""),
            ["listen.tls.certificate", "/missing/c"],
        ),
        (
            &format!(
                "{LEAST}[listen.tls]\ncertificate = \"c\"\nkey = \"k\"\nclient_ca = \"a\"\nnames = {{ e9 = \"x\" }}"
            ),
            ["listen.tls.names.e9", "no switch"],
        ),
    ];
    for (text, words) in cases {
        let found = problem(text);
        assert!(words.iter().all(|word| found.contains(word)), "{text}: {found}");
        assert!(!found.contains('\n'), "{found}");
    }
}
