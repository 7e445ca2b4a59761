//! What was given on the command line and in the environment, looked up by the name of the setting.

use std::fmt;
use std::time::Duration;

use clap::{Arg, ArgMatches};

use super::parse;
use super::table::{SETTINGS, Setting, UNSUPPORTED};

/// A setting that is missing or cannot be understood. Ends the start with exit code 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingError {
    /// The variable, or the option when the value came from the command line.
    pub name: String,
    /// What was given; `None` when nothing was.
    pub value: Option<String>,
    /// What is wrong with it.
    pub reason: String,
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{}: {value:?}: {}", self.name, self.reason),
            None => write!(f, "{}: {}", self.name, self.reason),
        }
    }
}

impl std::error::Error for SettingError {}

/// Options and variables. A value that is empty or blank counts as not given.
pub struct Given<'a> {
    options: Option<&'a ArgMatches>,
    environment: &'a dyn Fn(&str) -> Option<String>,
}

/// One command line argument per setting, for the program and each command that takes settings.
pub fn arguments() -> impl Iterator<Item = Arg> {
    SETTINGS.iter().map(|setting| {
        let default = match (setting.default, setting.derived_default) {
            ("", "") => String::new(),
            ("", text) | (text, _) => format!(" [default: {text}]"),
        };
        Arg::new(setting.variable)
            .long(setting.option)
            .value_name(setting.value)
            .help_heading(setting.heading)
            .hide_default_value(true)
            .allow_hyphen_values(true)
            .help(format!("{}{default} [env: {}]", setting.help, setting.variable))
    })
}

impl<'a> Given<'a> {
    /// `options` as parsed with [`arguments`]; `environment` reads a variable.
    pub fn new(options: Option<&'a ArgMatches>, environment: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self { options, environment }
    }

    /// The value of a setting and where it came from, before any default.
    fn look_up(&self, variable: &str) -> Option<(String, String)> {
        let setting = Self::setting(variable);
        let option = self.options.and_then(|options| options.try_get_one::<String>(variable).ok().flatten());
        if let Some(value) = option.map(|value| value.trim()).filter(|value| !value.is_empty()) {
            let name = setting.map_or_else(|| variable.to_owned(), |setting| format!("--{}", setting.option));
            return Some((name, value.to_owned()));
        }
        let older = setting.and_then(|setting| setting.older_variable);
        [Some(variable), older].into_iter().flatten().find_map(|name| {
            let value = (self.environment)(name)?;
            let value = value.trim();
            (!value.is_empty()).then(|| (name.to_owned(), value.to_owned()))
        })
    }

    fn setting(variable: &str) -> Option<&'static Setting> {
        SETTINGS.iter().find(|setting| setting.variable == variable)
    }

    fn default(variable: &str) -> &'static str {
        Self::setting(variable).map_or("", |setting| setting.default)
    }

    /// An error about a setting, with the name under which it was given.
    pub(super) fn error(&self, variable: &str, reason: &str) -> SettingError {
        let secret = Self::setting(variable).is_some_and(Setting::is_secret);
        match self.look_up(variable) {
            Some((name, value)) => {
                SettingError { name, value: Some(value).filter(|_| !secret), reason: reason.to_owned() }
            }
            None => SettingError { name: variable.to_owned(), value: None, reason: reason.to_owned() },
        }
    }

    /// Text, or the default of the table; `None` when both are empty.
    pub(super) fn text(&self, variable: &str) -> Option<String> {
        let default = Self::default(variable);
        self.look_up(variable).map(|(_, value)| value).or_else(|| (!default.is_empty()).then(|| default.to_owned()))
    }

    /// Whether only the older name of the variable is set.
    pub(super) fn is_set_by_older_name(&self, variable: &str) -> bool {
        let older = Self::setting(variable).and_then(|setting| setting.older_variable);
        older.is_some_and(|older| (self.environment)(older).is_some_and(|value| !value.trim().is_empty()))
    }

    pub(super) fn list(&self, variable: &str) -> Vec<String> {
        self.text(variable).map(|text| parse::list(&text)).unwrap_or_default()
    }

    pub(super) fn boolean(&self, variable: &str) -> Result<Option<bool>, SettingError> {
        match self.text(variable) {
            Some(text) => parse::boolean(&text).map_err(|reason| self.error(variable, &reason)),
            None => Ok(None),
        }
    }

    pub(super) fn number(&self, variable: &str) -> Result<Option<i64>, SettingError> {
        let Some(text) = self.text(variable) else { return Ok(None) };
        let number = parse::number(&text).map_err(|reason| self.error(variable, &reason))?;
        let most = Self::setting(variable).map_or(i64::MAX, Setting::most);
        match number {
            Some(number) if number > most => Err(self.error(variable, &format!("more than {most}"))),
            number => Ok(number),
        }
    }

    /// A number as given, also 0 and less, or the default.
    pub(super) fn number_or_default(&self, variable: &str) -> Result<i64, SettingError> {
        Ok(self.number(variable)?.unwrap_or(0))
    }

    /// A number; 0 and less mean the default.
    pub(super) fn positive(&self, variable: &str) -> Result<i64, SettingError> {
        let number = self.number_or_default(variable)?;
        // The table's test makes sure that the default is a positive number where this is asked.
        Ok(if number > 0 { number } else { Self::default(variable).parse().unwrap_or(1) })
    }

    pub(super) fn size(&self, variable: &str) -> Result<usize, SettingError> {
        Ok(usize::try_from(self.positive(variable)?).unwrap_or(usize::MAX))
    }

    pub(super) fn seconds(&self, variable: &str) -> Result<Duration, SettingError> {
        Ok(Duration::from_secs(self.positive(variable)?.unsigned_abs()))
    }

    pub(super) fn milliseconds(&self, variable: &str) -> Result<Duration, SettingError> {
        Ok(Duration::from_millis(self.positive(variable)?.unsigned_abs()))
    }

    /// A number of attempts; below 1 means 1.
    pub(super) fn attempts(&self, variable: &str) -> Result<u32, SettingError> {
        Ok(u32::try_from(self.number_or_default(variable)?.max(1)).unwrap_or(u32::MAX))
    }

    pub(super) fn address(&self, variable: &str) -> Result<Option<String>, SettingError> {
        match self.text(variable) {
            Some(text) => parse::listen_address(&text).map(Some).map_err(|reason| self.error(variable, &reason)),
            None => Ok(None),
        }
    }

    /// An `http://` or `https://` URL, without a slash at the end.
    pub(super) fn url(&self, variable: &str) -> Result<Option<String>, SettingError> {
        let Some(text) = self.text(variable) else { return Ok(None) };
        let is_url = text.parse::<http::Uri>().is_ok_and(|uri| {
            matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty())
        });
        if !is_url {
            return Err(self.error(variable, "not an http:// or https:// URL"));
        }
        Ok(Some(text.trim_end_matches('/').to_owned()))
    }

    /// One of the words, in lower case.
    pub(super) fn choice(&self, variable: &str, words: &[&str]) -> Result<String, SettingError> {
        let word = self.text(variable).unwrap_or_default().to_ascii_lowercase();
        if words.contains(&word.as_str()) {
            return Ok(word);
        }
        Err(self.error(variable, &format!("not one of {}", words.join(", "))))
    }

    /// Settings of the contract that this build does not carry out stop the start when they are asked for.
    pub(super) fn refuse_unsupported(&self) -> Result<(), SettingError> {
        for (variable, harmless) in UNSUPPORTED {
            if let Some((_, value)) = self.look_up(variable)
                && !harmless.contains(&value.to_ascii_lowercase().as_str())
            {
                return Err(self.error(variable, "not supported by this build"));
            }
        }
        Ok(())
    }

    /// Name, shown value and origin of every setting, for `check-config`. Secrets are not shown.
    pub fn effective(&self) -> Vec<(&'static str, String, String)> {
        SETTINGS
            .iter()
            .map(|setting| match self.look_up(setting.variable) {
                Some((name, value)) => {
                    let shown = if setting.is_secret() { "(hidden)".to_owned() } else { value };
                    (setting.variable, shown, name)
                }
                None if setting.default.is_empty() => {
                    (setting.variable, setting.derived_default.to_owned(), "default".to_owned())
                }
                None => (setting.variable, setting.default.to_owned(), "default".to_owned()),
            })
            .collect()
    }
}
