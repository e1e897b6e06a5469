//! Files of other tools that are not supported, and what to use instead.

use pathloom_model::spec::{extension, Spec, SpecError};

/// The problem with a file of this name, and the way out; `None` if the name shows no problem.
fn problem_of(path: &str) -> Option<String> {
    match extension(path)?.as_str() {
        "et" => Some("a Chakra trace is named by the file of its first rank: chakra:file=NAME.0.et".to_owned()),
        "topo" | "graphml" => Some(format!("{path} is a fabric, not traffic; use it with --fabric")),
        _ => None,
    }
}

/// The error for a traffic specification that is the name of a file; `None` if it is no such name.
pub(crate) fn file_as_name(spec: &Spec) -> Option<SpecError> {
    let path = spec.name();
    let problem = match extension(path)?.as_str() {
        "cm" => format!("an htsim matrix is a list of flows: flows:file={path}"),
        "xml" => format!("a file of FlowMonitor is a list of flows: flows:file={path}"),
        _ => problem_of(path).unwrap_or_else(|| {
            "unsupported format: flow sizes are FILE.csv, flows are flows:file=FILE.csv, FILE.cm (htsim), \
             flow.txt or FILE.xml (ns-3), coflows are \
             coflow:file=FILE.txt, traces of training are chakra:file=NAME.0.et or simai:file=FILE.txt"
                .to_owned()
        }),
    };
    Some(spec.error(problem))
}

/// Refuses a `file=` of a specification whose name shows another format.
pub(crate) fn check_file(spec: &Spec, path: &str) -> Result<(), SpecError> {
    problem_of(path).map_or(Ok(()), |problem| Err(spec.error(format!("file: {problem}"))))
}

/// The problem with a text that begins like a workload of SimAI or ASTRA-sim, which name the parallelism first.
pub(crate) fn foreign_text(text: &str) -> Option<String> {
    let first = text.lines().next()?.trim_start();
    let kinds = ["HYBRID_", "DATA", "MODEL", "TRANSFORMER", "DLRM", "MICRO"];
    let words = ["model_parallel_NPU_group", "all_gpus:", "checkpoint_initiates"];
    let is_foreign = kinds.iter().any(|kind| first.starts_with(kind)) && !first.contains(',')
        || words.iter().any(|word| first.contains(word));
    is_foreign.then(|| "is a workload of SimAI or ASTRA-sim; simai:file= reads those".to_owned())
}

/// Reads `file=`, which is required, from a specification. Unsupported files of other tools are refused.
pub(crate) fn take_file(spec: &Spec, example: &str) -> Result<String, SpecError> {
    let missing = || spec.error(format!("names no file; expected file=, such as {}:file={example}", spec.name()));
    let file = spec.text_of("file").ok_or_else(missing)?;
    check_file(spec, file)?;
    Ok(file.to_owned())
}
