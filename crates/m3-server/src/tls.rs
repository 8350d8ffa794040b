//! TLS for every port, from files in PEM form. Which protocol a client speaks inside is told by ALPN.

use std::sync::Arc;

use anyhow::{Context, ensure};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::args::TlsOptions;

/// Chooses the arithmetic of TLS for this process' own requests, which cannot be made before.
pub fn provide() {
    // Whoever came first chose the same.
    let _ = ring::default_provider().install_default();
}

/// Reads and checks certificate and key.
pub fn acceptor(options: &TlsOptions) -> anyhow::Result<TlsAcceptor> {
    let file = options.certificates.display();
    let certificates = CertificateDer::pem_file_iter(&options.certificates)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .with_context(|| format!("cannot read --ssl-certfile {file}"))?;
    ensure!(!certificates.is_empty(), "--ssl-certfile {file} holds no certificate");
    let key = PrivateKeyDer::from_pem_file(&options.key)
        .with_context(|| format!("cannot read --ssl-keyfile {}", options.key.display()))?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .with_context(|| format!("--ssl-certfile {file} and --ssl-keyfile do not belong together"))?;
    let mut config = config;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
