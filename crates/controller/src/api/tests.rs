use crate::tests::loopback::{api, lab, lab_without, read_answer, request, wait, Directory, Lab, OPERATE, READ};
use pathloom_fabrics::fabric_from_spec;
use serde_json::{json, Value};
use std::io::{Read, Write};
use std::time::Duration;

const ANNOUNCED: &str = "[scheme]\nspec = \"ofpt:sizes=announced\"\n";

fn standing(more: &str) -> Lab {
    lab(Directory::new(), &api(more), true)
}

fn announce(lab: &Lab, src_port: u16) -> Value {
    let five_tuple = json!({"src": "10.0.0.1", "dst": "10.0.7.1", "src_port": src_port, "dst_port": 80});
    let body = json!({"five_tuple": five_tuple, "size_bytes": 10_000_000}).to_string();
    let (status, answer) = lab.change("POST", "/v1/flows", &body);
    assert_eq!(status, 202, "{answer}");
    answer
}

/// Assigns paths. Returns the id of the assignment.
fn assign(lab: &Lab) -> String {
    let (status, row) = lab.change("POST", "/v1/assignments", r#"{"src": "10.0.0.1", "dst": "10.0.7.1", "count": 2}"#);
    assert_eq!(status, 201, "{row}");
    row["id"].to_string()
}

#[test]
fn requests_need_a_token_and_changes_need_role_operate() {
    let lab = standing("");
    for path in ["/", "/openapi.json", "/metrics", "/v1/state", "/v1/flows", "/nowhere"] {
        let answer = lab.call("GET", path, "", "");
        assert_eq!((answer.status, answer.json()["title"].as_str()), (401, Some("no token")), "{path}");
        // Chromium asks for a password only if Basic has a header of its own.
        for way in ["\r\nwww-authenticate: basic realm=", "\r\nwww-authenticate: bearer\r\n"] {
            assert!(answer.head.contains(way), "{}", answer.head);
        }
        assert!(answer.head.contains("application/problem+json") && answer.head.contains("connection: close"));
    }
    let basic = |token: &str| format!("Basic {}", data_encoding::BASE64.encode(format!("me:{token}").as_bytes()));
    let (read, operate) = (format!("Bearer {READ}"), format!("bearer {OPERATE}"));
    let wrong =
        [format!("{read}0"), "Bearer".into(), "Digest x".into(), "Basic !".into(), basic("x"), "Bearer ".into()];
    for authorization in wrong {
        assert_eq!(lab.call("GET", "/v1/state", &authorization, "").status, 401, "{authorization}");
    }
    for authorization in [&read, &operate, &basic(READ)] {
        assert_eq!(lab.call("GET", "/v1/state", authorization, "").status, 200, "{authorization}");
    }
    // A password, which a browser sends by itself, cannot change anything. Neither can a token of role read.
    for authorization in [&read, &basic(OPERATE)] {
        let answer = lab.call("POST", "/v1/scheme/fall-back", authorization, "");
        assert_eq!(answer.status, 403);
        assert!(answer.json()["expected"].as_str().unwrap().contains("operate"));
    }
    assert_eq!(lab.call("POST", "/v1/scheme/dry-run", &read, "{\"scheme\": \"ecmp\"}").status, 200);
    assert_eq!(lab.call("POST", "/v1/scheme/fall-back", &operate, "").status, 200);
}

#[test]
fn every_documented_route_exists_and_the_page_loads_nothing_from_other_hosts() {
    let lab = standing(ANNOUNCED);
    let flow = announce(&lab, 4000)["flow"]["id"].as_str().unwrap().to_owned();
    let document = lab.get("/openapi.json");
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.len() >= 17, "{}", paths.len());
    for (path, methods) in paths.iter().filter(|(path, _)| path.starts_with("/v1/")) {
        let link = if path.contains("links") { "e0_0:3" } else { "" };
        let path = path.replace("{name}", "e0_0").replace("{id}", link).replace("{flow}", &flow);
        for method in methods.as_object().unwrap().keys() {
            // A new assignment each time, because one of the methods releases it.
            let path = path.replace("{assignment}", &assign(&lab));
            match method.as_str() {
                // Tested below; it does not end at once.
                "get" if path == "/v1/events" => {}
                "get" => drop(lab.get(&path)),
                other => {
                    // The request may be invalid, but the route exists, and an error has a detail.
                    let (status, answer) = lab.change(&other.to_uppercase(), &path, "");
                    let told = answer["status"] == status && answer["detail"].is_string();
                    assert!(status < 300 || told, "{path}: {status} {answer}");
                    assert!(![404, 405].contains(&status), "{path}: {answer}");
                }
            }
        }
    }
    let page = lab.call("GET", "/", &format!("Bearer {READ}"), "");
    assert_eq!(page.status, 200);
    assert!(page.head.contains("default-src 'none'"));
    for path in ["/", "/app.js", "/app.css"] {
        let part = lab.call("GET", path, &format!("Bearer {READ}"), "");
        assert_eq!(part.status, 200, "{path}");
        let elsewhere = part.body.replace("http://www.w3.org/", "");
        assert!(!elsewhere.contains("http:") && !elsewhere.contains("https:"), "{path}");
    }
}

#[test]
fn the_event_stream_begins_with_everything_and_continues_with_changes() {
    let lab = standing(ANNOUNCED);
    let fabric = lab.get("/v1/fabric");
    let links = fabric["links"]["id"].as_array().unwrap().len();
    assert_eq!((fabric["nodes"].as_array().unwrap().len(), links), (36, 96));
    assert_eq!(fabric["links"]["id"][2 * 16].as_str().unwrap().split(':').count(), 2, "NODE:PORT");
    assert_eq!(lab.call("GET", "/v1/events", "", "").status, 401);
    let mut events = lab.events(&format!("Bearer {READ}"));
    let first = events.next().unwrap();
    assert_eq!(
        (first["links"]["index"].as_array().unwrap().len(), first["switches"].as_array().unwrap().len()),
        (96, 20)
    );
    assert_eq!(first["state"]["switches"], 20);
    let (status, _) = lab.change("POST", "/v1/links/e0_0,a0_0/drain", "");
    assert_eq!(status, 200);
    let id = |index: &Value| fabric["links"]["id"][index.as_u64().unwrap() as usize].as_str().unwrap().to_owned();
    let told = events.take(10).find(|event| !event["links"]["index"].as_array().unwrap().is_empty()).unwrap();
    let names: Vec<String> = told["links"]["index"].as_array().unwrap().iter().map(id).collect();
    assert!(names.iter().any(|name| name.starts_with("e0_0:")) && names.len() < 96, "{told}");
    assert!(["draining", "drained"].contains(&told["links"]["state"][0].as_str().unwrap()), "{told}");
}

#[test]
fn a_token_can_query_its_role_and_only_reads_as_a_password() {
    let lab = standing("");
    let basic = format!("Basic {}", data_encoding::BASE64.encode(format!("me:{OPERATE}").as_bytes()));
    let cases = [(format!("Bearer {READ}"), "looker", "read"), (format!("Bearer {OPERATE}"), "doer", "operate")];
    for (authorization, name, role) in cases.into_iter().chain([(basic, "doer", "read")]) {
        let told = lab.call("GET", "/v1/token", &authorization, "").json();
        assert_eq!((told["name"].as_str(), told["role"].as_str()), (Some(name), Some(role)));
    }
}

#[test]
fn a_flow_is_announced_explained_and_moved_off_a_drained_cable() {
    let lab = standing(ANNOUNCED);
    let announced = announce(&lab, 4000);
    let id = announced["flow"]["id"].as_str().unwrap().to_owned();
    let row = || lab.get(&format!("/v1/flows/{id}"));
    wait("the flow is on its path", || row()["phase"] == "own path");
    assert_eq!(lab.get("/v1/flows/10.0.0.1:4000,10.0.7.1:80,tcp")["id"], id.as_str());
    let why = lab.get(&format!("/v1/flows/{id}/why"));
    let sentence = why["why"].as_str().unwrap();
    assert!(sentence.starts_with("ofpt put it on e0_0 - ") && sentence.contains("began"), "{sentence}");
    let candidates = why["candidates"].as_array().unwrap();
    assert_eq!(candidates.len(), 4);
    assert_eq!(candidates.iter().filter(|candidate| candidate["current"] == true).count(), 1);
    let before = row()["path"].clone();
    let name = |index: usize| before[index].as_str().unwrap().to_owned();
    let cable = format!("/v1/links/{},{}", name(1), name(2));
    assert_eq!(lab.get(&cable)["flows"], 1);
    let (status, drained) = lab.change("POST", &format!("{cable}/drain"), "");
    assert!(status == 200 && ["draining", "drained"].contains(&drained["state"].as_str().unwrap()), "{drained}");
    wait("the flow has left", || lab.get(&cable)["state"] == "drained" && row()["phase"] == "own path");
    assert_ne!(row()["path"], before);
    let why = lab.get(&format!("/v1/flows/{id}/why"));
    assert!(why["placed"]["cause"].as_str().unwrap().contains("left service"), "{why}");
    assert_eq!(lab.get("/v1/state")["cables"]["drained"], 1);
    assert_eq!(lab.change("POST", &format!("{cable}/drain"), "").0, 409);
    assert_eq!(lab.change("POST", &format!("{cable}/undrain"), "").0, 200);
    wait("the link is back", || lab.get(&cable)["state"] == "up");
}

#[test]
fn a_link_is_draining_while_a_switch_at_its_end_has_no_session() {
    let away = fabric_from_spec("fat-tree:k=4").unwrap().find("a0_0").unwrap();
    let lab = lab_without(Directory::new(), &api(""), &[u64::from(away.0) + 1]);
    let cable = "/v1/links/e0_0,a0_0";
    let drain = || lab.change("POST", &format!("{cable}/drain"), "");
    let (status, problem) = drain();
    assert!(status == 409 && problem["detail"].as_str().unwrap().contains("a0_0 has had no session yet"), "{problem}");
    wait("the switch counts as gone", || drain().0 == 200);
    wait("all switches with a session have confirmed", || lab.get("/v1/state")["staging"] == false);
    assert_eq!(lab.get(cable)["state"], "draining", "a0_0 keeps its old routes");
}

#[test]
fn a_scheme_is_dry_run_put_in_charge_and_replaced_by_ecmp() {
    let lab = standing(ANNOUNCED);
    announce(&lab, 4000);
    wait("the flow and its reverse flow are on their paths", || lab.get("/v1/state")["flows"]["own_path"] == 2);
    let (status, run) = lab.change("POST", "/v1/scheme/dry-run", "{\"scheme\": \"ecmp\"}");
    assert_eq!((status, &run["flows"], &run["moved"]), (200, &json!(1), &json!(1)), "{run}");
    assert!(run["moves"][0]["to"].is_null() && run["settled"] == true && run["then"]["uncertain"] == 1);
    let mean = |row: &Value| row["max_min_mean_bps"].as_f64().unwrap();
    assert!((mean(&run["now"]) - 1e7).abs() < 1.0 && (mean(&run["then"]) - 1e7).abs() < 1.0, "{run}");
    assert_eq!(lab.get("/v1/state")["flows"]["own_path"], 2, "nothing was done");
    let (status, state) = lab.change("PUT", "/v1/scheme", "{\"scheme\": \"lessor\"}");
    assert_eq!((status, state["scheme"].as_str(), &state["flows"]["known"]), (200, Some("lessor"), &json!(2)));
    assert_eq!(lab.get("/v1/scheme")["scheme"], "lessor");
    let (status, state) = lab.change("POST", "/v1/scheme/fall-back", "");
    assert_eq!((status, state["scheme"].as_str()), (200, Some("ecmp")));
    wait("both are back", || lab.get("/v1/state")["flows"]["default_routes"] == 2);
}

#[test]
fn lists_come_in_pages() {
    let lab = standing(ANNOUNCED);
    (0..5).for_each(|port| drop(announce(&lab, 5000 + port)));
    for (list, more, all) in [("switches", "", 20), ("links", "", 96), ("flows", "&long=true", 5)] {
        let (mut seen, mut after) = (Vec::new(), String::new());
        loop {
            let page = lab.get(&format!("/v1/{list}?limit=2{more}{after}"));
            let key = if list == "switches" { "name" } else { "id" };
            seen.extend(page["items"].as_array().unwrap().iter().map(|item| item[key].as_str().unwrap().to_owned()));
            let Some(next) = page["next"].as_str() else { break };
            after = format!("&after={next}");
        }
        let mut names = seen.clone();
        names.sort();
        names.dedup();
        assert_eq!((seen.len(), names.len()), (all, all), "{list}");
    }
    // The reverse flows are not long.
    let others = lab.get("/v1/flows?long=false")["items"].clone();
    assert!(others.as_array().unwrap().iter().all(|flow| flow["long"] == false), "{others}");
}

#[test]
fn invalid_requests_are_answered_with_the_place_and_a_way_out() {
    let lab = standing("");
    let unknown =
        json!({"five_tuple": {"src": "9.9.9.9", "dst": "10.0.7.1", "src_port": 1, "dst_port": 2}}).to_string();
    let cases = [
        ("GET", "/v1/flows/123", "", 404, "no flow `123`"),
        ("GET", "/v1/flows/abc", "", 400, "SRC:PORT,DST:PORT"),
        ("GET", "/v1/flows/1.2.3.4:1,2.3.4.5:2,tcp,more", "", 400, "does not name a flow"),
        ("GET", "/v1/flows?limit=0", "", 400, "1 to 1000"),
        ("GET", "/v1/flows?limt=3", "", 400, "limt"),
        ("GET", "/v1/links?after=x", "", 400, "not a position in a list"),
        ("GET", "/v1/links/e0_0:99", "", 404, "NODE:PORT"),
        ("GET", "/v1/switches/h0_0_0", "", 404, "/v1/switches"),
        ("GET", "/v2/state", "", 404, "/openapi.json"),
        ("DELETE", "/v1/state", "", 405, "DELETE"),
        ("POST", "/v1/flows", "{\"five_tuple\"", 400, "line 1"),
        ("POST", "/v1/flows", "{\"size\": 1}", 400, "size"),
        ("POST", "/v1/flows", &unknown, 404, "9.9.9.9"),
        ("POST", "/v1/flows", "[]", 400, "an array"),
        ("POST", "/v1/flows", &unknown.replace("\"src_port\":1", "\"src_port\":1.5"), 400, "1.5 is not an integer"),
        ("POST", "/v1/flows", &unknown.replace("\"src_port\":1", "\"src_port\":65536"), 400, "65536 is not an integer"),
        ("POST", "/v1/flows", &unknown.replace("\"src_port\":1", "\"src_port\":1.0"), 404, "9.9.9.9"),
        ("GET", "/v1/switches?long=true", "", 400, "long"),
        ("GET", "/v1/flows?after=18446744073709551615", "", 400, "not a position in a list"),
        ("PUT", "/v1/scheme", "{\"scheme\": \"ecmp\", \"seed\": 9007199254740992}", 400, "too large"),
        ("POST", "/v1/switches/e0_0/drain", "", 409, "have no other path"),
        ("POST", "/v1/links/e0_0:1/drain", "", 409, "a link of a host"),
        ("POST", "/v1/links/e0_0:3/undrain", "", 409, "in service already"),
        ("PUT", "/v1/scheme", "{\"scheme\": \"ecpm\"}", 400, "ecmp"),
        ("PUT", "/v1/scheme", "{\"scheme\": \"ecmp\", \"colour\": 1}", 400, "colour"),
    ];
    for (method, path, body, status, words) in cases {
        let (found, answer) = lab.change(method, path, body);
        assert_eq!(found, status, "{method} {path}: {answer}");
        assert!(answer.to_string().contains(words), "{method} {path}: {answer}");
    }
    assert_eq!(lab.get("/v1/state")["sessions"], 20);
}

#[test]
fn too_long_and_too_slow_requests_are_refused() {
    let lab = standing("body_bytes = 1000\nheader_timeout = \"2s\"");
    let (status, answer) = lab.change("POST", "/v1/flows", &"x".repeat(100_000));
    assert_eq!(status, 413, "{answer}");
    let mut slow = lab.connect();
    let head = format!(
        "POST /v1/flows HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {OPERATE}\r\nContent-Length: 90\r\n\r\n{{"
    );
    slow.write_all(head.as_bytes()).unwrap();
    assert_eq!(read_answer(slow).status, 408);
    let metrics = || lab.call("GET", "/metrics", &format!("Bearer {READ}"), "").body;
    wait("it is counted", || metrics().contains("pathloom_api_requests_total{status=\"413\"} 1"));
    let mut junk = lab.connect();
    junk.write_all(&[0x16, 0x03, 0x01, 0xff, 0xff, 0, 1, 2, 3]).unwrap();
    let mut rest = Vec::new();
    let _ = junk.read_to_end(&mut rest);
    assert_eq!(lab.get("/v1/state")["sessions"], 20);
}

#[test]
fn headers_that_arrive_byte_by_byte_time_out() {
    let lab = standing("timeout = \"60s\"\nheader_timeout = \"1s\"");
    let mut slow = lab.connect();
    let head = format!("GET /v1/state HTTP/1.1\r\nHost: x\r\nX-Slow: {}", "x".repeat(1000));
    let sent = head.bytes().take_while(|&byte| {
        std::thread::sleep(Duration::from_millis(50));
        slow.write_all(&[byte]).is_ok()
    });
    assert!(sent.count() < 1000, "the connection was closed while the client sent headers");
    let metrics = || lab.call("GET", "/metrics", &format!("Bearer {READ}"), "").body;
    let counted = "pathloom_api_connections_closed_total{why=\"no_token_in_time\"} 1";
    wait("it is counted", || metrics().contains(counted));
}

#[test]
fn idle_connections_do_not_block_requests_of_the_same_address() {
    // No idle connection times out before the test ends.
    let lab = standing("timeout = \"10min\"\nheader_timeout = \"10min\"\nconnections = 16");
    let mut idle: Vec<_> = (0..60).map(|_| lab.connect()).collect();
    idle.iter_mut().skip(30).for_each(|stream| drop(stream.write_all(b"GET /v1/state HTTP/1.1\r\nHost: x\r\n")));
    (0..20).for_each(|_| drop(lab.get("/v1/state")));
    // Connections that were used once and stay open, as those of a proxy do, do not block others either. The same
    // holds for connections without a token.
    let asked = format!("GET /v1/scheme HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {READ}\r\n\r\n");
    let use_once = |_| {
        let mut stream = lab.connect();
        stream.write_all(asked.as_bytes()).unwrap();
        let mut answer = [0; 15];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200 OK");
        stream
    };
    let kept: Vec<_> = (0..30).map(use_once).collect();
    (0..20).for_each(|_| drop(lab.get("/v1/state")));
    let unauthenticated: Vec<_> = (0..30).map(|_| lab.call("GET", "/v1/state", "", "").status).collect();
    assert!(unauthenticated.iter().all(|&status| status == 401), "{unauthenticated:?}");
    let made_room = || {
        let metrics = lab.call("GET", "/metrics", &format!("Bearer {READ}"), "").body;
        let why = "pathloom_api_connections_closed_total{why=\"made_room\"} ";
        metrics.lines().find_map(|line| line.strip_prefix(why)).map_or(0, |count| count.parse::<u64>().unwrap())
    };
    wait("they are counted", || made_room() >= 60);
    drop((idle, kept));
}

#[test]
fn as_many_requests_as_slots_are_answered_at_a_time() {
    let lab = standing("timeout = \"20s\"\nconnections = 64");
    // There are twice as many connections as slots for unauthenticated ones, but none is closed before its request.
    // Each of two tokens uses half of the slots, which is the most that one token may.
    let asked = [READ, OPERATE].map(|token| request("GET", "/v1/state", &format!("Bearer {token}"), ""));
    let streams: Vec<_> = (0..64)
        .map(|number| {
            let mut stream = lab.connect();
            stream.write_all(asked[number % 2].as_bytes()).unwrap();
            stream
        })
        .collect();
    let answers: Vec<u16> = streams.into_iter().map(|stream| read_answer(stream).status).collect();
    assert_eq!(answers, [200; 64]);
}

#[test]
fn requests_of_one_token_leave_room_for_those_of_another() {
    let lab = standing("timeout = \"10min\"\nconnections = 8");
    // Requests whose bodies do not arrive. Each occupies a slot until its client leaves.
    let head = format!(
        "POST /v1/flows HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {OPERATE}\r\nContent-Length: 90\r\n\r\n{{"
    );
    let mut slow: Vec<_> = (0..4).map(|_| lab.connect()).collect();
    slow.iter_mut().for_each(|stream| stream.write_all(head.as_bytes()).unwrap());
    wait("the token has its share", || lab.change("POST", "/v1/scheme/dry-run", "{}").0 == 429);
    (0..10).for_each(|_| drop(lab.get("/v1/state")));
    drop(slow);
    wait("the token has room again", || lab.change("POST", "/v1/scheme/dry-run", "{}").0 == 400);
}

#[test]
fn a_path_that_is_not_utf_8_is_refused() {
    let lab = standing("");
    for path in ["/v1/switches/%ff", "/v1/flows/%c3%28/why", "/%ff"] {
        let answer = lab.call("GET", path, &format!("Bearer {READ}"), "");
        assert_eq!(answer.status, 400, "{path}: {}", answer.body);
        assert!(answer.head.contains("application/problem+json") && answer.json()["place"] == "path", "{path}");
    }
    let answer = lab.call("GET", "/v1/switches/%65%30_0", &format!("Bearer {READ}"), "");
    assert_eq!(answer.status, 200, "{}", answer.body);
}

#[test]
fn metrics_are_in_the_text_format() {
    let lab = standing(ANNOUNCED);
    announce(&lab, 4000);
    wait("the flow and its reverse flow are on their paths", || lab.get("/v1/state")["flows"]["own_path"] == 2);
    let plain = lab.call("GET", "/metrics", &format!("Bearer {READ}"), "");
    assert!(plain.head.contains("text/plain; version=0.0.4"), "{}", plain.head);
    let lines: Vec<&str> = plain.body.lines().collect();
    for line in lines.iter().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        let told = |kind: &str| lines.iter().any(|line| line.starts_with(&format!("# {kind} {family} ")));
        assert!(told("HELP") && told("TYPE"), "{name} has no help");
    }
    assert!(!plain.body.contains("# EOF") && !plain.body.contains("# UNIT"));
    // A client that understands the newer format requests it.
    let wanted = format!("Bearer {READ}\r\nAccept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5");
    let answer = lab.call("GET", "/metrics", &wanted, "");
    assert!(answer.head.contains("application/openmetrics-text"), "{}", answer.head);
    assert!(answer.body.ends_with("# EOF\n"));
    for line in [
        "pathloom_sessions 20",
        "pathloom_flows{phase=\"own_path\"} 2",
        "pathloom_routes_total 1",
        "pathloom_plan_seconds_count 1",
        "pathloom_plan_seconds_bucket{le=\"+Inf\"} 1",
        "pathloom_links{state=\"up\"} 32",
        "pathloom_switch_connected{switch=\"e0_0\"} 1",
        "pathloom_messages_in_total{kind=\"barrier_reply\"}",
        "pathloom_packet_ins_limited_total 0",
        "pathloom_loop_lag_seconds_sum",
    ] {
        assert!(answer.body.contains(line), "{line} is not in\n{}", answer.body);
    }
    // No name is described twice.
    let names: Vec<&str> = answer.body.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    let mut once = names.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), names.len());
}
