//! Log set-up, metric names and the access-log record.
