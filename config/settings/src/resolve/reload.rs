//! Another version of the router document, while the router runs.

use super::{scheduler, sharing};
use crate::document;
use crate::facts::{DiskFiles, Files};
use crate::problems::{Findings, Place, Problems};
use crate::resolved::Settings;

impl Settings {
    /// These settings with another router document, as if the router had been started with it: its scheduler, its mode
    /// of coordination, its order of token sources, and the Redis that it implies. `warnings` are those of the document.
    /// Nothing else differs.
    ///
    /// # Errors
    /// Everything that is wrong with the document, at once; these settings then stay what they are.
    pub fn reload_document(&self, text: &str) -> Result<Self, Problems> {
        self.reload_document_from(text, &DiskFiles)
    }

    /// The same with given files, which the document's tokenizer directories are looked for in.
    ///
    /// # Errors
    /// Everything that is wrong with the document, at once.
    pub fn reload_document_from(&self, text: &str, files: &dyn Files) -> Result<Self, Problems> {
        let mut findings = Findings::default();
        let config_map = self.kubernetes.as_ref().and_then(|kubernetes| kubernetes.config_map.as_ref());
        let name = config_map.map_or_else(|| "router document".to_owned(), |map| format!("ConfigMap {map}"));
        let place = Place::file(&name);
        let mut scheduler = document::read(text, &name, &mut findings);
        scheduler::fit(&mut scheduler, self.limits.max_attempts, self.token_deadline);
        let redis = sharing::redis_with(
            self.redis.clone().filter(|redis| !redis.implied),
            self.implied_redis.as_ref(),
            &scheduler,
        );
        let coordination = sharing::coordination(&scheduler, redis.as_ref(), &place, &mut findings);
        let mut settings = Self {
            scheduler,
            redis,
            coordination,
            from_document: true,
            warnings: Vec::new(),
            ..self.clone()
        };
        scheduler::check_tokenization(&settings, &place, files, &mut findings);
        settings.warnings = findings.into_result()?;
        Ok(settings)
    }
}
