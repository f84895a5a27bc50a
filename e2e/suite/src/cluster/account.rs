//! Service accounts that may do exactly what a role says.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};
use tokio::time::Instant;

use super::{Cluster, client_of, write_kubeconfig};
use crate::GUARD;

const RBAC: &str = "rbac.authorization.k8s.io";
const TOKEN_SECONDS: i64 = 3600;
const POLL: Duration = Duration::from_millis(20);

/// What an account is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Grant<'a> {
    /// A ClusterRole, everywhere.
    ClusterRole(&'a str),
    /// A Role, in its own namespace, which is the account's.
    Role(&'a str),
}

/// A service account with a token.
#[derive(Debug)]
pub struct Account {
    kubeconfig: PathBuf,
}

impl Account {
    /// Its kubeconfig file: for kubectl, helm and the router.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A new client of the account's, for one test.
    ///
    /// # Errors
    /// The kubeconfig file cannot be used.
    pub async fn client(&self) -> Result<Client> {
        client_of(&self.kubeconfig).await
    }

    /// Returns when the API acts on rules that were bound to the account by somebody else, in `namespace`.
    ///
    /// # Errors
    /// It never does.
    pub async fn is_granted(&self, namespace: &str, rules: &[PolicyRule]) -> Result<()> {
        take_effect(&self.client().await?, namespace, rules).await
    }
}

impl Cluster {
    /// Gives a service account these roles, and takes a token for it; an account that is missing is made. Returns when
    /// the API acts on the roles.
    ///
    /// # Errors
    /// A role is not there, or the API refuses something.
    pub async fn account(&self, namespace: &str, name: &str, grants: &[Grant<'_>]) -> Result<Account> {
        let client = self.client().await?;
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
        if accounts.get_opt(name).await?.is_none() {
            let account = ServiceAccount { metadata: named(name), ..ServiceAccount::default() };
            accounts.create(&PostParams::default(), &account).await?;
        }
        let spec =
            TokenRequestSpec { expiration_seconds: Some(TOKEN_SECONDS), ..TokenRequestSpec::default() };
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let token = accounts
            .create_token_request(name, &PostParams::default(), &request)
            .await?
            .status
            .context("the API gave no token")?
            .token;
        let kubeconfig = self.folder().join(format!("{namespace}.{name}.kubeconfig"));
        let user = serde_json::json!({"token": token});
        write_kubeconfig(&kubeconfig, self.port, &self.folder().join("authority.crt"), &user)?;
        let account = Account { kubeconfig };
        let own = account.client().await?;
        for grant in grants {
            let rules = bind(&client, namespace, name, *grant).await?;
            take_effect(&own, namespace, &rules).await?;
        }
        Ok(account)
    }
}

/// Binds a role to the account; the role's rules.
async fn bind(client: &Client, namespace: &str, account: &str, grant: Grant<'_>) -> Result<Vec<PolicyRule>> {
    let subject = Subject {
        kind: "ServiceAccount".to_owned(),
        name: account.to_owned(),
        namespace: Some(namespace.to_owned()),
        ..Subject::default()
    };
    let subjects = Some(vec![subject]);
    let to = |kind: &str, name: &str| RoleRef {
        api_group: RBAC.to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
    };
    let params = PostParams::default();
    match grant {
        Grant::ClusterRole(role) => {
            let found = Api::<ClusterRole>::all(client.clone()).get(role).await?;
            let metadata = named(&format!("{namespace}.{account}.{role}"));
            let binding = ClusterRoleBinding { metadata, role_ref: to("ClusterRole", role), subjects };
            Api::all(client.clone()).create(&params, &binding).await?;
            Ok(found.rules.unwrap_or_default())
        }
        Grant::Role(role) => {
            let found = Api::<Role>::namespaced(client.clone(), namespace).get(role).await?;
            let metadata = named(&format!("{account}.{role}"));
            let binding = RoleBinding { metadata, role_ref: to("Role", role), subjects };
            Api::namespaced(client.clone(), namespace).create(&params, &binding).await?;
            Ok(found.rules.unwrap_or_default())
        }
    }
}

/// The API learns of bindings from a watch of its own, a moment after they are made.
async fn take_effect(own: &Client, namespace: &str, rules: &[PolicyRule]) -> Result<()> {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(own.clone());
    let deadline = Instant::now() + GUARD;
    for rule in rules {
        let first = |list: &Option<Vec<String>>| list.as_ref().and_then(|list| list.first().cloned());
        let Some(resource) = first(&rule.resources) else { continue };
        let (resource, subresource) = match resource.split_once('/') {
            Some((resource, subresource)) => (resource.to_owned(), Some(subresource.to_owned())),
            None => (resource, None),
        };
        let attributes = ResourceAttributes {
            group: first(&rule.api_groups),
            name: first(&rule.resource_names),
            namespace: Some(namespace.to_owned()),
            resource: Some(resource),
            subresource,
            verb: rule.verbs.first().cloned(),
            ..ResourceAttributes::default()
        };
        let spec = SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            ..SelfSubjectAccessReviewSpec::default()
        };
        let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
        while !reviews
            .create(&PostParams::default(), &review)
            .await?
            .status
            .is_some_and(|status| status.allowed)
        {
            if Instant::now() > deadline {
                bail!("the API never acted on the rule {rule:?}");
            }
            tokio::time::sleep(POLL).await;
        }
    }
    Ok(())
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
}
