//! The core against the programs it has to agree with.

#[cfg(test)]
mod hostkey_openssh;
