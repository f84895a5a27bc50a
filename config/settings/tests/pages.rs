//! The reference pages in `docs/` are those that the code generates.

use std::path::Path;

fn check(name: &str, generated: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    let page = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        page == generated,
        "docs/{name} is out of date; run `cargo run -p kvasir-settings --example generate_docs`"
    );
}

#[test]
fn the_settings_page_is_up_to_date() {
    check("settings.md", &kvasir_settings::generate::settings_page());
}

#[test]
fn the_models_page_is_up_to_date() {
    check("models-file.md", &kvasir_settings::generate::models_file_page());
}

#[test]
fn the_settings_page_names_every_flag_and_plugin() {
    let page = kvasir_settings::generate::settings_page();
    for arg in kvasir_settings::flags::command().get_arguments() {
        let long = arg.get_long().unwrap_or_default();
        assert!(page.contains(&format!("`--{long}")), "--{long}");
    }
    for name in kvasir_settings::plugin_names::SCORERS.iter().chain(&kvasir_settings::plugin_names::FILTERS) {
        assert!(page.contains(&format!("| `{name}` |")), "{name}");
    }
}
