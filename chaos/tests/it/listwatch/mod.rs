//! Unmodified clients of Kubernetes against the list-watch door.

mod client_go;
mod kube_rs;
mod kubectl;
mod python;
mod restore;
