//! Calls and answers of XML-RPC (xmlrpc.com/spec.md), as far as calls with plain parameters need it. The XML library
//! refuses document types, so it expands no entities of a caller.

use roxmltree::{Document, Node, ParsingOptions};
use std::fmt::Write;

/// Maximum number of XML nodes of a call. No call needs nearly as many.
const MOST_NODES: u32 = 1000;

/// The call is not well-formed XML. (These three codes are the usual ones: "Specification for Fault Code
/// Interoperability".)
const NOT_WELL_FORMED: i32 = -32700;
/// The XML is not a call.
const NO_CALL: i32 = -32600;
/// There is no such method.
pub(super) const NO_METHOD: i32 = -32601;
/// The parameters are not those of the method.
pub(super) const BAD_PARAMETERS: i32 = -32602;

/// A call.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Call {
    pub method: String,
    pub params: Vec<Value>,
}

/// A value of a call or an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Value {
    Int(i64),
    Bool(bool),
    Text(String),
    Array(Vec<Value>),
    /// A value of a type that no method uses, with the name of the type.
    Other(String),
}

/// Why a call was not carried out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Fault {
    pub code: i32,
    pub message: String,
}

impl Fault {
    pub(super) fn new(code: i32, message: impl Into<String>) -> Fault {
        Fault { code, message: message.into() }
    }
}

impl Value {
    /// The name of its type in a call.
    pub(super) fn kind(&self) -> &str {
        match self {
            Value::Int(_) => "int",
            Value::Bool(_) => "boolean",
            Value::Text(_) => "string",
            Value::Array(_) => "array",
            Value::Other(name) => name,
        }
    }
}

/// Reads a call.
///
/// # Errors
/// The bytes are not XML, or not a call. The fault says what was expected, and where.
pub(super) fn read_call(bytes: &[u8]) -> Result<Call, Fault> {
    let text = std::str::from_utf8(bytes).map_err(|_| Fault::new(NOT_WELL_FORMED, "the call is not UTF-8"))?;
    let options = ParsingOptions { allow_dtd: false, nodes_limit: MOST_NODES, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options).map_err(|problem| {
        let message = format!("the call cannot be read: {problem}; a methodCall without document type was expected");
        Fault::new(NOT_WELL_FORMED, message)
    })?;
    let root = document.root_element();
    if !root.has_tag_name("methodCall") {
        return Err(no_call(format!("`{}` is not a call; `methodCall` was expected", short(root.tag_name().name()))));
    }
    let name = child(root, "methodName").and_then(|node| node.text()).map(str::trim).filter(|name| !name.is_empty());
    let method = name.ok_or_else(|| no_call("the call has no `methodName`"))?.to_owned();
    let params = child(root, "params").into_iter().flat_map(|params| elements(params, "param"));
    let params = params.enumerate().map(|(index, param)| {
        let value = child(param, "value").ok_or_else(|| no_call(format!("parameter {} has no `value`", index + 1)));
        read_value(value?).map_err(|problem| Fault::new(BAD_PARAMETERS, format!("parameter {}: {problem}", index + 1)))
    });
    Ok(Call { method, params: params.collect::<Result<_, Fault>>()? })
}

fn no_call(message: impl Into<String>) -> Fault {
    Fault::new(NO_CALL, message)
}

fn elements<'a>(of: Node<'a, 'a>, name: &'static str) -> impl Iterator<Item = Node<'a, 'a>> {
    of.children().filter(move |node| node.has_tag_name(name))
}

fn child<'a>(of: Node<'a, 'a>, name: &'static str) -> Option<Node<'a, 'a>> {
    elements(of, name).next()
}

fn read_value(value: Node<'_, '_>) -> Result<Value, String> {
    // A value without a type is a string.
    let Some(typed) = value.first_element_child() else {
        return Ok(Value::Text(value.text().unwrap_or_default().to_owned()));
    };
    let text = typed.text().unwrap_or_default();
    match typed.tag_name().name() {
        "string" => Ok(Value::Text(text.to_owned())),
        "int" | "i4" | "i8" => {
            let number = text.trim().parse().map_err(|_| format!("`{}` is not an int", short(text)))?;
            Ok(Value::Int(number))
        }
        "boolean" => match text.trim() {
            "0" => Ok(Value::Bool(false)),
            "1" => Ok(Value::Bool(true)),
            _ => Err(format!("`{}` is not a boolean", short(text))),
        },
        other => Ok(Value::Other(short(other).to_owned())),
    }
}

/// The first 60 characters of a caller's text, for messages.
fn short(text: &str) -> &str {
    text.char_indices().nth(60).map_or(text, |(end, _)| &text[..end])
}

/// The answer to a call.
pub(super) fn write_answer(answer: &Result<Value, Fault>) -> String {
    let mut out = "<?xml version=\"1.0\"?>\n<methodResponse>".to_owned();
    match answer {
        Ok(value) => {
            out.push_str("<params><param>");
            write_value(value, &mut out);
            out.push_str("</param></params>");
        }
        Err(Fault { code, message }) => {
            // Writing to a string does not fail.
            let _ = write!(out, "<fault><value><struct><member><name>faultCode</name><value><int>{code}</int></value>");
            out.push_str("</member><member><name>faultString</name>");
            write_value(&Value::Text(message.clone()), &mut out);
            out.push_str("</member></struct></value></fault>");
        }
    }
    out.push_str("</methodResponse>\n");
    out
}

fn write_value(value: &Value, out: &mut String) {
    out.push_str("<value>");
    match value {
        Value::Int(number) => drop(write!(out, "<int>{number}</int>")),
        Value::Bool(is) => drop(write!(out, "<boolean>{}</boolean>", u8::from(*is))),
        Value::Text(text) | Value::Other(text) => {
            out.push_str("<string>");
            text.chars().for_each(|char| write_char(char, out));
            out.push_str("</string>");
        }
        Value::Array(values) => {
            out.push_str("<array><data>");
            values.iter().for_each(|value| write_value(value, out));
            out.push_str("</data></array>");
        }
    }
    out.push_str("</value>");
}

/// Appends an escaped character. Carriage returns, and characters that XML 1.0 does not allow (§2.2), become question
/// marks.
fn write_char(char: char, out: &mut String) {
    match char {
        '&' => out.push_str("&amp;"),
        '<' => out.push_str("&lt;"),
        '>' => out.push_str("&gt;"),
        '\t' | '\n' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'.. => out.push(char),
        _ => out.push('?'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(params: &str) -> Result<Call, Fault> {
        read_call(
            format!("<?xml version='1.0'?><methodCall><methodName>M</methodName>{params}</methodCall>").as_bytes(),
        )
    }

    fn value(text: &str) -> Result<Value, Fault> {
        call(&format!("<params>\n<param><value>{text}</value></param></params>")).map(|mut call| call.params.remove(0))
    }

    #[test]
    fn values_of_a_call_are_read() {
        assert_eq!(call("").unwrap(), Call { method: "M".into(), params: vec![] });
        assert_eq!(value("plain"), Ok(Value::Text("plain".into())));
        assert_eq!(value("<string>a &amp; b</string>"), Ok(Value::Text("a & b".into())));
        assert_eq!(value("<string/>"), Ok(Value::Text(String::new())));
        assert_eq!(value("<i4> -7 </i4>"), Ok(Value::Int(-7)));
        assert_eq!(value("<boolean>1</boolean>"), Ok(Value::Bool(true)));
        assert_eq!(value("<struct></struct>"), Ok(Value::Other("struct".into())));
        let two = call("<params><param><value><int>1</int></value></param><param><value>x</value></param></params>");
        assert_eq!(two.unwrap().params, [Value::Int(1), Value::Text("x".into())]);
    }

    #[test]
    fn invalid_calls_are_faults_and_no_entity_is_expanded() {
        let bomb = "<!DOCTYPE b [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \"&a;&a;&a;&a;&a;&a;&a;&a;\">]>\
                    <methodCall><methodName>&b;</methodName></methodCall>";
        let file = "<!DOCTYPE x [<!ENTITY f SYSTEM \"file:///etc/passwd\">]><methodCall>&f;</methodCall>";
        let deep = format!("{}{}", "<a>".repeat(20_000), "</a>".repeat(20_000));
        let wide = format!("<methodCall>{}</methodCall>", "<a/>".repeat(20_000));
        let cases: [(&[u8], i32, &str); 11] = [
            (b"", NOT_WELL_FORMED, "cannot be read"),
            (b"<methodCall>", NOT_WELL_FORMED, "cannot be read"),
            (b"\xff\xfe", NOT_WELL_FORMED, "UTF-8"),
            (bomb.as_bytes(), NOT_WELL_FORMED, "DTD"),
            (file.as_bytes(), NOT_WELL_FORMED, "DTD"),
            (deep.as_bytes(), NOT_WELL_FORMED, "limit"),
            (wide.as_bytes(), NOT_WELL_FORMED, "limit"),
            (b"<methodResponse/>", NO_CALL, "`methodCall` was expected"),
            (b"<methodCall/>", NO_CALL, "no `methodName`"),
            (b"<methodCall><methodName> </methodName></methodCall>", NO_CALL, "no `methodName`"),
            (
                b"<methodCall><methodName>M</methodName><params><param/></params></methodCall>",
                NO_CALL,
                "parameter 1 has no `value`",
            ),
        ];
        for (bytes, code, words) in cases {
            let fault = read_call(bytes).unwrap_err();
            assert!(fault.code == code && fault.message.contains(words), "{fault:?}");
        }
        for bad in ["<int>x</int>", "<int></int>", "<int>9223372036854775808</int>", "<boolean>2</boolean>"] {
            assert_eq!(value(bad).unwrap_err().code, BAD_PARAMETERS, "{bad}");
        }
    }

    #[test]
    fn answers_with_any_text_are_well_formed() {
        let answers = [
            Ok(Value::Array(vec![Value::Int(4), Value::Bool(true)])),
            Err(Fault::new(404, "no <b> & \u{0} \u{ffff} \r here")),
        ];
        for answer in answers {
            let text = write_answer(&answer);
            let document = Document::parse(&text).unwrap();
            assert!(document.root_element().has_tag_name("methodResponse"), "{text}");
        }
        assert!(write_answer(&Err(Fault::new(1, "a\u{0}b"))).contains("<string>a?b</string>"));
    }
}
