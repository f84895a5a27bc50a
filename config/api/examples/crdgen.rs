//! Writes the CustomResourceDefinitions into the chart.

use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/kvasir/crds");
    std::fs::create_dir_all(&folder)?;
    for definition in kvasir_api::crds::definitions() {
        let (name, text) = kvasir_api::crds::as_file(&definition)?;
        std::fs::write(folder.join(name), text)?;
    }
    Ok(())
}
