//! Compiles the `.proto` files with protox, so that building needs no `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=runlet");
    let files = ["reason", "system", "workspace", "job", "terminal", "file", "transfer", "sandbox"]
        .map(|name| format!("runlet/v1/{name}.proto"));
    let descriptors = protox::compile(files, ["."])?;
    tonic_prost_build::configure().bytes(".runlet.v1").build_transport(false).compile_fds(descriptors)?;
    Ok(())
}
