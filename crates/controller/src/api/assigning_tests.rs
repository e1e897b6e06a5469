//! Path assignments over HTTP and XML-RPC: who may request what, and the answers to invalid calls.

use crate::tests::loopback::{api, lab, read_answer, request, Answer, Directory, Lab, OPERATE, READ};
use roxmltree::Document;
use serde_json::{json, Value};
use socket2::{Domain, SockAddr, Socket, Type};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Hosts with loopback addresses, so that tests can connect as these hosts.
const HOSTS: &str = "[[addresses]]\nat = \"h0\"\nprefixes = [\"127.0.0.1/32\"]\n\
                     [[addresses]]\nat = \"h1\"\nprefixes = [\"127.0.0.2/32\"]\n\
                     [[addresses]]\nat = \"h15\"\nprefixes = [\"127.0.0.9/32\"]\n";
const MAC: &str = "<string>02:00:00:00:00:01</string>";

fn standing(more: &str) -> Lab {
    let paths = format!("[paths]\naddress = \"127.0.0.1:0\"\n{more}\n{HOSTS}");
    lab(Directory::new(), &format!("{}{paths}", api("")), true)
}

/// Connects to the address for applications, from a loopback address.
fn connect(lab: &Lab, from: &str) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SockAddr::from(format!("{from}:0").parse::<SocketAddr>().unwrap())).unwrap();
    socket.connect(&SockAddr::from(lab.paths.unwrap())).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

fn ask(lab: &Lab, from: &str, method: &str, path: &str, authorization: &str, body: &str) -> Answer {
    let mut stream = connect(lab, from);
    let _ = stream.write_all(request(method, path, authorization, body).as_bytes());
    read_answer(stream)
}

fn xml(method: &str, params: &[&str]) -> String {
    let params: String = params.iter().map(|param| format!("<param><value>{param}</value></param>")).collect();
    format!("<?xml version='1.0'?><methodCall><methodName>{method}</methodName><params>{params}</params></methodCall>")
}

/// The answer to a call: numbers and booleans as text, or the code and the text of the fault.
fn read(answer: &Answer) -> Result<Vec<String>, (i32, String)> {
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(answer.head.contains("text/xml"), "{}", answer.head);
    let document = Document::parse(&answer.body).unwrap_or_else(|problem| panic!("{problem}: {}", answer.body));
    let leaves = |name: &'static str| document.descendants().filter(move |node| node.has_tag_name(name));
    let texts = |name| leaves(name).filter_map(|node| node.text().map(str::to_owned)).collect::<Vec<_>>();
    if leaves("fault").next().is_some() {
        return Err((texts("int")[0].parse().unwrap(), texts("string")[0].clone()));
    }
    Ok([texts("int"), texts("boolean")].concat())
}

fn call(lab: &Lab, from: &str, method: &str, params: &[&str]) -> Result<Vec<String>, (i32, String)> {
    read(&ask(lab, from, "POST", "/RPC2", "", &xml(method, params)))
}

fn int(number: impl std::fmt::Display) -> String {
    format!("<int>{number}</int>")
}

#[test]
fn a_host_gets_paths_by_xml_rpc_claims_them_in_turn_and_releases_them() {
    let lab = standing("");
    let found = call(&lab, "127.0.0.1", "AssignMultipath", &["127.0.0.1", MAC, "127.0.0.9", &int(4)]).unwrap();
    assert_eq!(found[0], "4");
    let id = found[1].clone();
    for port in [5001, 5002, 5003] {
        let made = call(&lab, "127.0.0.1", "MakePath", &[&int(&id), "127.0.0.1", "127.0.0.9", &int(port)]);
        assert_eq!(made, Ok(vec!["1".to_owned()]));
    }
    let row = lab.get(&format!("/v1/assignments/{id}"));
    let users: Vec<u64> = row["paths"].as_array().unwrap().iter().map(|path| path["users"].as_u64().unwrap()).collect();
    assert_eq!((users, &row["waiting"], &row["expires_s"]), (vec![1, 1, 1, 0], &json!(3), &Value::Null));
    assert_eq!((&row["src"], &row["search"]), (&json!("127.0.0.1"), &json!("breadth-first")));
    assert_eq!(row["paths"][0]["switches"].as_array().unwrap().len(), 5, "{row}");
    assert_eq!(call(&lab, "127.0.0.1", "ReleaseMultipath", &[&int(&id)]), Ok(vec!["1".to_owned()]));
    assert_eq!(lab.get("/v1/assignments")["items"], json!([]));
    let again = call(&lab, "127.0.0.1", "MakePath", &[&int(&id), "127.0.0.1", "127.0.0.9", &int(5001)]);
    assert!(again.as_ref().is_err_and(|(code, words)| *code == 404 && words.contains("expired")), "{again:?}");
}

#[test]
fn the_search_is_a_setting_and_a_request_may_choose_it() {
    let lab = standing("search = \"edge-disjoint\"");
    // From one ToR of a k=4 FatTree there are two ways up, so only two paths share no cable.
    let found = call(&lab, "127.0.0.1", "AssignMultipath", &["127.0.0.1", MAC, "127.0.0.9", &int(4)]).unwrap();
    assert_eq!(found[0], "2");
    let asked = json!({"src": "10.0.0.1", "dst": "10.0.7.1", "count": 4});
    let (status, row) = lab.change("POST", "/v1/assignments", &asked.to_string());
    assert_eq!((status, row["paths"].as_array().unwrap().len(), &row["asked"]), (201, 2, &json!(4)), "{row}");
    let asked = json!({"src": "10.0.0.1", "dst": "10.0.7.1", "count": 4, "search": "breadth-first", "lifetime_s": 60});
    let (status, row) = lab.change("POST", "/v1/assignments", &asked.to_string());
    assert_eq!((status, row["paths"].as_array().unwrap().len()), (201, 4), "{row}");
}

/// Programs with sockets of the family AF_INET6 write the addresses of IPv4 hosts as these have them.
#[test]
fn addresses_of_either_family_name_the_same_host() {
    let lab = standing("");
    for (src, dst) in [("10.0.0.1", "::ffff:10.0.7.1"), ("::ffff:10.0.0.1", "10.0.7.1")] {
        let asked = json!({"src": src, "dst": dst, "count": 2}).to_string();
        let (status, row) = lab.change("POST", "/v1/assignments", &asked);
        assert_eq!((status, &row["src"], &row["dst"]), (201, &json!("10.0.0.1"), &json!("10.0.7.1")), "{row}");
    }
    let asked = json!({"src": "2001:db8::1", "dst": "10.0.7.1", "count": 2}).to_string();
    let (status, problem) = lab.change("POST", "/v1/assignments", &asked);
    assert_eq!(status, 400);
    assert!(problem.to_string().contains("2001:db8::1 is not the address of an IPv4 host"), "{problem}");
    let calls = [("127.0.0.1", "::ffff:127.0.0.9"), ("::ffff:127.0.0.1", "127.0.0.9")];
    for (src, dst) in calls {
        assert_eq!(call(&lab, "127.0.0.1", "AssignMultipath", &[src, MAC, dst, &int(2)]).unwrap()[0], "2");
    }
}

#[test]
fn operators_list_claim_and_release_for_any_host_page_by_page() {
    let lab = standing("");
    let assign = |dst: &str| {
        let asked = json!({"src": "10.0.0.1", "dst": dst, "count": 2}).to_string();
        let (status, row) = lab.change("POST", "/v1/assignments", &asked);
        assert_eq!(status, 201, "{row}");
        row["id"].as_u64().unwrap()
    };
    let ids: Vec<u64> = ["10.0.7.1", "10.0.6.1", "10.0.5.1"].into_iter().map(assign).collect();
    let first = lab.get("/v1/assignments?limit=2");
    let rest = lab.get(&format!("/v1/assignments?limit=2&after={}", first["next"].as_str().unwrap()));
    let all = [&first, &rest].map(|page| page["items"].as_array().unwrap().clone()).concat();
    assert_eq!(all.iter().map(|row| row["id"].as_u64().unwrap()).collect::<Vec<_>>(), ids);
    assert_eq!(rest["next"], Value::Null);
    let connection = json!({"src": "10.0.0.1", "dst": "10.0.7.1", "src_port": 5001}).to_string();
    let place = format!("/v1/assignments/{}", ids[0]);
    let (status, claimed) = lab.change("POST", &format!("{place}/claims"), &connection);
    assert_eq!((status, &claimed["switches"]), (201, &all[0]["paths"][0]["switches"]));
    // A claim for an existing connection names both ports and takes effect at once.
    let standing = |dst_port: Value| {
        let body = json!({"src": "10.0.0.1", "dst": "10.0.7.1", "src_port": 443, "dst_port": dst_port});
        lab.change("POST", &format!("{place}/claims"), &body.to_string())
    };
    for wrong in [json!(0), json!(70_000), json!(-1), json!("x"), json!(1.5)] {
        assert_eq!(standing(wrong.clone()).0, 400, "{wrong}");
    }
    for port in [5001, 5002] {
        assert_eq!(standing(json!(port)).0, 201);
    }
    let row = lab.get(&place);
    assert_eq!((&row["waiting"], &row["connections"]), (&json!(1), &json!(2)));
    // A claim for a new connection may name its destination port. The connection gets its path soon, even if its
    // first packet is not seen.
    let to_come = |opens_to: Value| {
        let body = json!({"src": "10.0.0.1", "dst": "10.0.7.1", "src_port": 5003, "opens_to": opens_to});
        lab.change("POST", &format!("{place}/claims"), &body.to_string())
    };
    for wrong in [json!(0), json!(70_000), json!("x")] {
        assert_eq!(to_come(wrong.clone()).0, 400, "{wrong}");
    }
    assert_eq!(to_come(json!(443)).0, 201);
    assert_eq!(lab.get(&place)["waiting"], json!(2));
    let begun = Instant::now();
    while lab.get(&place)["connections"] != json!(3) {
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", lab.get(&place));
        std::thread::sleep(Duration::from_millis(10));
    }
    // A token of role read sees everything and changes nothing.
    let looker = |method: &str| lab.call(method, &place, &format!("Bearer {READ}"), "").status;
    assert_eq!((looker("GET"), looker("DELETE")), (200, 403));
    let (status, gone) = lab.change("DELETE", &place, "");
    assert_eq!((status, &gone["released"], &gone["waiting"]), (200, &json!(true), &json!(0)));
    // Its connections keep their paths until they end.
    assert_eq!((lab.change("DELETE", &place, "").0, &gone["connections"]), (404, &json!(3)));
    // The same by XML-RPC, with a token.
    let body = xml("ReleaseMultipath", &[&int(ids[1])]);
    let bearer = format!("Bearer {OPERATE}");
    assert_eq!(read(&lab.call("POST", "/RPC2", &bearer, &body)), Ok(vec!["1".to_owned()]));
    assert_eq!(lab.call("POST", "/RPC2", "", &body).status, 401);
    let fault = read(&lab.call("POST", "/RPC2", &format!("Bearer {READ}"), &body)).unwrap_err();
    assert!(fault.0 == 403 && fault.1.contains("may only read"), "{fault:?}");
    // The first one is listed as long as it has connections.
    assert_eq!(lab.get("/v1/assignments")["items"].as_array().unwrap().len(), 2);
}

#[test]
fn a_host_acts_only_for_itself_unless_a_token_allows_more() {
    let lab = standing("");
    let asked = json!({"src": "127.0.0.1", "dst": "127.0.0.9", "count": 2}).to_string();
    let own = ask(&lab, "127.0.0.1", "POST", "/v1/assignments", "", &asked);
    assert_eq!(own.status, 201, "{}", own.body);
    let place = format!("/v1/assignments/{}", own.json()["id"]);
    // Another host can neither see nor claim nor release it.
    let other = |method: &str, path: &str, body: &str| ask(&lab, "127.0.0.2", method, path, "", body);
    let claim = |src: &str| json!({"src": src, "dst": "127.0.0.9", "src_port": 5001}).to_string();
    assert_eq!(other("POST", "/v1/assignments", &asked).status, 403);
    assert_eq!(other("GET", "/v1/assignments", "").json()["items"], json!([]));
    for (method, path, body) in [
        ("GET", place.clone(), String::new()),
        ("DELETE", place.clone(), String::new()),
        ("POST", format!("{place}/claims"), claim("127.0.0.1")),
        ("POST", format!("{place}/claims"), claim("127.0.0.2")),
    ] {
        let answer = other(method, &path, &body);
        assert_eq!(answer.status, 403, "{method} {path}: {}", answer.body);
    }
    let bearer = |token: &str| format!("Bearer {token}");
    let with = |token: &str| ask(&lab, "127.0.0.2", "POST", "/v1/assignments", &bearer(token), &asked).status;
    assert_eq!((with(READ), with("unknown"), with(OPERATE)), (403, 401, 201));
    // This address serves nothing else.
    for path in ["/v1/state", "/v1/flows", "/metrics", "/"] {
        assert_eq!(other("GET", path, "").status, 404, "{path}");
    }
    assert_eq!(lab.get("/v1/assignments")["items"].as_array().unwrap().len(), 2);
}

#[test]
fn invalid_calls_are_faults_and_install_nothing() {
    let lab = standing("");
    let id = call(&lab, "127.0.0.1", "AssignMultipath", &["127.0.0.1", MAC, "127.0.0.9", &int(2)]).unwrap()[1].clone();
    let others = json!({"src": "127.0.0.2", "dst": "127.0.0.9", "count": 2}).to_string();
    let others = ask(&lab, "127.0.0.2", "POST", "/v1/assignments", "", &others).json()["id"].to_string();
    let released = call(&lab, "127.0.0.1", "AssignMultipath", &["127.0.0.1", MAC, "127.0.0.9", &int(2)]).unwrap();
    let released = int(&released[1]);
    call(&lab, "127.0.0.1", "ReleaseMultipath", &[&released]).unwrap();
    let before = (lab.get("/v1/assignments"), lab.get("/v1/state")["flows"].clone());
    let (id, others) = (int(&id), int(&others));
    let (me, you, to) = ("127.0.0.1", "127.0.0.2", "127.0.0.9");
    let assign = |params: [&str; 4]| xml("AssignMultipath", &params);
    let make = |params: [&str; 4]| xml("MakePath", &params);
    let bomb = "<!DOCTYPE b [<!ENTITY a \"aaaaaaaaaaaaaaaa\"><!ENTITY b \"&a;&a;&a;&a;&a;&a;\">]>";
    let cases: Vec<(String, i32, &str)> = vec![
        (make([&int(123_456), me, to, &int(5001)]), 404, "no assignment 123456"),
        (make([&released, me, to, &int(5001)]), 404, "expired"),
        (make([&others, me, to, &int(5001)]), 403, "another owner"),
        (make([&others, you, to, &int(5001)]), 403, "not the address of the caller"),
        (make([&id, me, "10.0.7.1", &int(5001)]), 409, "leads from"),
        (make([&id, me, to, &int(0)]), 400, "port 0 is not valid"),
        (make([&id, me, to, &int(70_000)]), -32602, "70000"),
        (make([&id, me, to, &int(-1)]), -32602, "-1"),
        (make([&int(-5), me, to, &int(5001)]), -32602, "assignment id"),
        (make(["<string>7</string>", me, to, &int(5001)]), -32602, "is a string, expected an int"),
        (assign([me, MAC, "10.9.9.9", &int(2)]), 404, "no host of the fabric has the address 10.9.9.9"),
        (assign([me, MAC, me, &int(2)]), 400, "one host"),
        (assign([you, MAC, to, &int(2)]), 403, "not the address of the caller"),
        (assign([me, MAC, to, &int(0)]), 400, "0 paths were asked for"),
        (assign([me, MAC, to, &int(10_000)]), 400, "10000 paths were asked for"),
        (assign([me, MAC, to, &int(-3)]), -32602, "-3"),
        (assign([me, MAC, to, "4"]), -32602, "is a string"),
        (assign([me, MAC, to, "<double>4.0</double>"]), -32602, "is a double"),
        (assign([me, MAC, to, "<struct/>"]), -32602, "is a struct"),
        (assign([me, MAC, to, "<int>four</int>"]), -32602, "`four` is not an int"),
        (assign([me, "x", to, &int(2)]), -32602, "not a hardware address"),
        (assign(["h0", MAC, to, &int(2)]), -32602, "not an IPv4 address"),
        (assign([&int(1), MAC, to, &int(2)]), -32602, "expected a string"),
        (xml("AssignMultipath", &[me, to]), -32602, "2 parameters, expected 4"),
        (xml("ReleaseMultipath", &[&others]), 403, "another owner"),
        (xml("Reboot", &[]), -32601, "no method `Reboot`"),
        ("<methodCall>".into(), -32700, "cannot be read"),
        (String::new(), -32700, "cannot be read"),
        ("{\"src\": 1}".into(), -32700, "cannot be read"),
        (format!("{bomb}{}", assign([me, MAC, to, "&b;"]).replace("<?xml version='1.0'?>", "")), -32700, "DTD"),
        (format!("{}{}", "<a>".repeat(2000), "</a>".repeat(2000)), -32700, "limit"),
        (assign([me, &"x".repeat(40_000), to, &int(2)]), 413, "more than 16384 bytes"),
        (assign([me, &"x".repeat(8_000_000), to, &int(2)]), 413, "more than 16384 bytes"),
    ];
    for (body, code, words) in cases {
        let shown: String = body.chars().take(300).collect();
        let answer = read(&ask(&lab, me, "POST", "/RPC2", "", &body));
        let (found, message) = answer.expect_err(&shown);
        assert!(found == code && message.contains(words), "{shown}: {found} {message}");
    }
    for (body, status, words) in [
        (json!({"src": me, "dst": to, "count": 0}), 400, "0 paths"),
        (json!({"src": me, "dst": to, "count": 10_000}), 400, "10000 paths"),
        (json!({"src": me, "dst": to, "count": "4"}), 400, "body"),
        (json!({"src": me, "dst": to, "count": 2, "lifetime_s": 0}), 400, "lifetime"),
        (json!({"src": me, "dst": to, "count": 2, "lifetime_s": 9_007_199_254_740_991_u64}), 400, "lifetime"),
        (json!({"src": me, "dst": to, "count": 2, "search": "deep"}), 400, "breadth-first"),
        (json!({"src": me, "dst": "10.9.9.9", "count": 2}), 404, "10.9.9.9"),
        (json!({"src": you, "dst": to, "count": 2}), 403, "not the address of the caller"),
    ] {
        let answer = ask(&lab, me, "POST", "/v1/assignments", "", &body.to_string());
        assert!(answer.status == status && answer.body.contains(words), "{body}: {}", answer.body);
    }
    for path in ["0", "x", "-1", "4294967296", "99999999999"] {
        let answer = ask(&lab, me, "GET", &format!("/v1/assignments/{path}"), "", "");
        assert_eq!(answer.status, 400, "{path}: {}", answer.body);
    }
    assert_eq!((lab.get("/v1/assignments"), lab.get("/v1/state")["flows"].clone()), before);
}

#[test]
fn a_request_without_a_token_must_mean_this_server() {
    let lab = standing("names = [\"paths.example\"]");
    let status = |host: &str| {
        let mut stream = connect(&lab, "127.0.0.1");
        let asked = request("GET", "/v1/assignments", "", "").replace("Host: localhost\r\n", host);
        let _ = stream.write_all(asked.as_bytes());
        read_answer(stream).status
    };
    assert_eq!(status(""), 200, "no browser leaves it out");
    for own in [
        "localhost",
        "LOCALHOST:8080",
        "127.0.0.1:80",
        "10.0.0.2",
        "[::1]",
        "[::1]:80",
        "[::ffff:10.0.0.2]",
        "paths.example",
        "Paths.Example.:8080",
    ] {
        assert_eq!(status(&format!("Host: {own}\r\n")), 200, "{own}");
    }
    for other in [
        "",
        "evil.example",
        "evil.example:80",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "paths.example@evil.example",
        "paths.example.evil.example:80",
        "example",
    ] {
        assert_eq!(status(&format!("Host: {other}\r\n")), 421, "{other}");
    }
    let mut stream = connect(&lab, "127.0.0.1");
    let asked =
        request("GET", "/v1/assignments", &format!("Bearer {OPERATE}"), "").replace("localhost", "evil.example");
    let _ = stream.write_all(asked.as_bytes());
    assert_eq!(read_answer(stream).status, 200, "no page knows a token");
}
