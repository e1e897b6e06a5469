//! Forwards packets between pairs of interfaces after a delay:
//! `pathloom-delay A,B,NANOSECONDS_TO_B,NANOSECONDS_TO_A …`.
//!
//! It emulates the length of a cable. Rate and queue are those of the interfaces at its ends; it adds none. When one
//! end loses its carrier, the other one does too. It runs until it is killed, and prints `ready` when it starts to
//! forward.

#![allow(unsafe_code)] // Packet sockets and their control messages have no safe interface.

mod cable;
mod interface;
mod packet;
mod sleep;

use cable::Cable;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(never) => match never {},
        Err(problem) => {
            eprintln!("pathloom-delay: {problem}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &[String]) -> Result<std::convert::Infallible, String> {
    if arguments.is_empty() {
        return Err("expected cables such as d10,d11,20000000,20000000".into());
    }
    let mut cables = arguments.iter().map(|argument| Cable::parse(argument)).collect::<Result<Vec<_>, _>>()?;
    sleep::prepare();
    println!("ready");
    let mut next_check = 0;
    loop {
        let now = sleep::now_ns();
        if now >= next_check {
            cables.iter_mut().for_each(Cable::pass_on_carrier);
            next_check = now + cable::CARRIER_NS;
        }
        for cable in &mut cables {
            cable.receive();
            cable.send_due(sleep::now_ns());
        }
        let due = cables.iter().filter_map(Cable::due).min().unwrap_or(u64::MAX).min(next_check);
        let sockets: Vec<i32> = cables.iter().flat_map(Cable::sockets).collect();
        sleep::until(due, &sockets).map_err(|problem| format!("poll: {problem}"))?;
    }
}
