//! The server's images and videos: one fetcher and one pool of decoders for all requests, and what their errors become
//! for clients. What is done with pixels is not decided here.

use axum::http::StatusCode;
use bytes::Bytes;
use m3_media::{Clip, Error, Fetcher, Kind, Meta, Picture, Pool, Source, Wanted};

use crate::args::MediaOptions;
use crate::error::ApiError;

/// Fetches and decodes under the operator's rules.
pub struct Media {
    fetcher: Fetcher,
    pool: Pool,
}

impl Media {
    /// # Errors
    /// No such folder of local media, or no TLS.
    pub fn new(options: &MediaOptions) -> Result<Self, Error> {
        Ok(Media {
            pool: Pool::new(options.policy.limits.clone(), options.decoders, options.decode_bytes),
            fetcher: Fetcher::new(options.policy.clone())?,
        })
    }

    /// The bytes of a picture as they were sent, and its pixels.
    ///
    /// # Errors
    /// The policy's refusals, limits, deadlines, and what is wrong with the picture.
    pub async fn image(&self, source: &Source) -> Result<(Bytes, Picture), Error> {
        let bytes = self.fetcher.fetch(source, Wanted::Image).await?;
        let picture = self.pool.image(bytes.clone()).await?;
        Ok((bytes, picture))
    }

    /// The bytes of a video as they were sent, and the frames that `choose` picks, each as `each` left it.
    ///
    /// # Errors
    /// As [`Media::image`].
    pub async fn video(
        &self,
        source: &Source,
        choose: impl FnMut(&Meta) -> Vec<u64>,
        each: impl FnMut(Picture) -> Result<Picture, Error>,
    ) -> Result<(Bytes, Clip), Error> {
        let bytes = self.fetcher.fetch(source, Wanted::Video).await?;
        let clip = self.pool.video(bytes.clone(), choose, each).await?;
        Ok((bytes, clip))
    }
}

/// What a client is told about a medium that failed; `param` is the field it came in.
pub fn refusal(param: &str, error: &Error) -> ApiError {
    let (status, code) = match error.kind() {
        Kind::Invalid => (StatusCode::BAD_REQUEST, "invalid_media"),
        Kind::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "media_too_large"),
        Kind::Timeout => (StatusCode::REQUEST_TIMEOUT, "media_timeout"),
        Kind::Upstream => (StatusCode::BAD_GATEWAY, "media_unavailable"),
        Kind::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "media_failed"),
    };
    ApiError { param: Some(param.to_owned()), ..ApiError::new(status, error.to_string()).with_code(code) }
}

#[cfg(test)]
mod tests {
    use super::refusal;
    use m3_media::Error;

    #[test]
    fn each_kind_of_failure_has_its_status() {
        for (error, status, code) in [
            (Error::Refused("a".into()), 400, "invalid_media"),
            (Error::too_large("a", 2, 1), 413, "media_too_large"),
            (Error::Timeout { what: "a".into(), seconds: 1 }, 408, "media_timeout"),
            (Error::Upstream("a".into()), 502, "media_unavailable"),
            (Error::Internal("a".into()), 500, "media_failed"),
            (Error::Absent { program: "ffmpeg".into(), purpose: "video".into() }, 400, "invalid_media"),
        ] {
            let answer = refusal("messages[0].content[1]", &error);
            assert_eq!((answer.status.as_u16(), answer.code), (status, Some(code)));
            assert_eq!(answer.param.as_deref(), Some("messages[0].content[1]"));
            assert_eq!(answer.message, error.to_string());
        }
    }
}
