//! Reports of a daemon: one-line errors, and the log.

use std::error::Error;

/// Returns an error and its causes in one line. A cause that is already in the line is not repeated.
pub fn one_line(problem: &(dyn Error + 'static)) -> String {
    let mut words = problem.to_string();
    let mut cause = problem.source();
    while let Some(next) = cause {
        let said = next.to_string();
        if !words.contains(&said) {
            words = format!("{words}: {said}");
        }
        cause = next.source();
    }
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Starts the log on standard error. `RUST_LOG` sets the level; the default is `info`.
pub fn start_log() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).init();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt;

    #[derive(Debug)]
    struct Failed(&'static str, Option<Box<Failed>>);

    impl fmt::Display for Failed {
        fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str(self.0)
        }
    }

    impl Error for Failed {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as &dyn Error)
        }
    }

    #[test]
    fn causes_are_joined_in_one_line_without_repetition() {
        let refused = || Some(Box::new(Failed("not permitted", None)));
        assert_eq!(one_line(&Failed("cannot\n\tload", refused())), "cannot load: not permitted");
        assert_eq!(one_line(&Failed("not permitted to load", refused())), "not permitted to load");
        let chain = Failed("a map", Some(Box::new(Failed("a call", refused()))));
        assert_eq!(one_line(&chain), "a map: a call: not permitted");
    }
}
