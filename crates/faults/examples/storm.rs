//! Runs schedules from a seed on: `storm SEED COUNT [everything] [sabotage]`. Prints broken promises; a single
//! schedule is printed in its smallest form.

use pathloom_faults::{run, shrink, Sabotage, Schedule, Scope};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |index: usize, or: u64| args.get(index).and_then(|text| text.parse().ok()).unwrap_or(or);
    let (first, count) = (number(1, 1), number(2, 1));
    let says = |word: &str| args.iter().any(|arg| arg == word);
    let sabotage = says("sabotage").then_some(Sabotage::HastyBarriers);
    let scope = if says("everything") { Scope::Everything } else { Scope::Promised };
    let began = std::time::Instant::now();
    let mut bad = 0;
    for seed in first..first + count {
        let schedule = Schedule::draw(seed, scope);
        let schedule = if count == 1 { shrink(&schedule, sabotage) } else { schedule };
        if count == 1 {
            print!("{schedule}");
        }
        let one = std::time::Instant::now();
        let verdict = run(&schedule, sabotage);
        if !verdict.violations.is_empty() {
            bad += 1;
            println!("{seed} {} {}: {}", schedule.fabric_spec, schedule.scheme, verdict.violations.join(" | "));
        }
        if one.elapsed().as_millis() > 1000 {
            println!("{seed} {} {} took {:?}", schedule.fabric_spec, schedule.scheme, one.elapsed());
        }
    }
    println!("{count} schedules, {bad} broken, {:?}", began.elapsed());
}
