//! What decodes videos, and what keeps it in bounds.

use super::Check;
use crate::args::Options;

pub(super) fn checks(plan: &Options) -> Vec<Check> {
    let missing = m3_media::video::missing_programs(&plan.http.media.policy.limits);
    let missing: Vec<String> = missing.iter().map(|program| program.display().to_string()).collect();
    vec![decoder(&missing), sandbox(m3_media::video::confines_files())]
}

/// Pictures need no program, so a server without one is a server without videos.
fn decoder(missing: &[String]) -> Check {
    const NAME: &str = "video decoder";
    match missing {
        [] => Check::good("host", NAME, "ffmpeg and ffprobe".to_owned()),
        missing => {
            let finding = format!("{}: not there, so videos are answered with 400", missing.join(" and "));
            Check::note("host", NAME, finding)
        }
    }
}

fn sandbox(confines_files: bool) -> Check {
    const NAME: &str = "video sandbox";
    if confines_files {
        return Check::good("host", NAME, "limits, seccomp, Landlock".to_owned());
    }
    let finding = "limits and seccomp; this kernel has no Landlock, so a decoder that a video has taken over could \
                   read what this user can read";
    let remedy = "use a kernel with CONFIG_SECURITY_LANDLOCK and landlock among lsm=, or a user that owns nothing, or \
                  --limit-mm-per-prompt video=0";
    Check::warning("host", NAME, finding.to_owned(), remedy)
}

/// The same at the start of a server that takes videos.
pub fn warn_without_landlock() {
    if !m3_media::video::confines_files() {
        tracing::warn!(
            "this kernel has no Landlock: ffmpeg, which decodes videos, is kept from networks, other programs, memory and \
             writing, but not from files that this user can read; --limit-mm-per-prompt video=0 takes no videos"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

    #[test]
    fn what_is_missing_for_videos_is_named() {
        assert_eq!(decoder(&[]).level, Level::Good);
        let check = decoder(&["/opt/ffmpeg".to_owned(), "/opt/ffprobe".to_owned()]);
        assert_eq!(check.level, Level::Note);
        assert!(check.finding.starts_with("/opt/ffmpeg and /opt/ffprobe: not there"), "{}", check.finding);
        assert_eq!(sandbox(true).level, Level::Good);
        let check = sandbox(false);
        assert_eq!(check.level, Level::Warning);
        assert!(check.finding.contains("no Landlock"), "{}", check.finding);
    }
}
