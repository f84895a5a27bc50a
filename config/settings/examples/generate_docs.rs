//! Writes `docs/settings.md` and `docs/models-file.md`.

use std::io;
use std::path::Path;

fn main() -> io::Result<()> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    std::fs::write(docs.join("settings.md"), kvasir_settings::generate::settings_page())?;
    std::fs::write(docs.join("models-file.md"), kvasir_settings::generate::models_file_page())
}
