//! A certificate of its own for a server, signed by an authority that exists for it alone.
//!
//! Invariant: it is good for `localhost` and `127.0.0.1` and for nothing else.

use crate::{
    Error, Result,
    home::Home,
    programs::{find, run},
};
use std::{fs, path::PathBuf};

/// Puts key and certificate into the data directory and refuses connections without TLS; the authority's certificate.
pub(super) fn certify(home: &Home) -> Result<PathBuf> {
    let openssl = find("openssl", "openssl")?;
    let run = |args: &str| run(home.command(&openssl).args(args.split(' '))).map(drop);
    home.write("server.ext", "subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth\n")?;
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    run(&format!("req -x509 {key} -keyout ca.key -out ca.crt -days 3650 -subj /CN=authority"))?;
    run(&format!("req {key} -keyout data/server.key -out server.csr -subj /CN=localhost"))?;
    let signed_by = "-CA ca.crt -CAkey ca.key -CAcreateserial -days 3650";
    run(&format!("x509 -req -in server.csr {signed_by} -extfile server.ext -out data/server.crt"))?;
    let rules = fs::read_to_string(home.path().join("data/pg_hba.conf")).map_err(Error::io("pg_hba.conf"))?;
    home.write("data/pg_hba.conf", &rules.replace("\nhost ", "\nhostssl "))?;
    Ok(home.path().join("ca.crt"))
}
