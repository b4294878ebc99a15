//! The client for tokio: one connection shared by many tasks, and a pool.
#![cfg(feature = "tokio")]
#![expect(clippy::unwrap_used, reason = "a test panics at every surprise")]

use std::sync::Arc;
use std::time::Duration;

use master_wire::{
    AsyncConnection, AsyncPool, BatchExistKey, CallError, ConnectError, ConnectOptions, Dialect, PoolOptions,
    ProtocolError, Reconnect, ServiceReady,
};
use testkit::master::{Script, StandIn};
use testkit::masters;

async fn ready(connection: &AsyncConnection) -> Result<String, CallError> {
    connection
        .call(&ServiceReady {}, |ready| ready.map(|version| version.to_string()))
        .await
        .map(|ready| ready.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_share_a_connection_to_each_real_master() {
    for dialect in Dialect::ALL {
        let master = masters::start(dialect.master_version(), &[]);
        let connection =
            AsyncConnection::connect(master.address(), &ConnectOptions::default()).await.unwrap();
        assert_eq!(connection.dialect(), dialect);
        let tasks: Vec<_> = (0..200)
            .map(|number| {
                let connection = connection.clone();
                tokio::spawn(async move {
                    let keys = vec![format!("key-{number}"); number % 5];
                    let call = BatchExistKey { keys: (&keys).into(), ..Default::default() };
                    connection.call(&call, |results| results.len()).await.unwrap() == number % 5
                })
            })
            .collect();
        for task in tasks {
            assert!(task.await.unwrap());
        }
    }
}

#[tokio::test]
async fn dialects_are_detected() {
    for dialect in Dialect::ALL {
        let master = StandIn::start(dialect, Script::honest());
        let connection =
            AsyncConnection::connect(master.address(), &ConnectOptions::default()).await.unwrap();
        assert_eq!(connection.dialect(), dialect);
        assert_eq!(ready(&connection).await.unwrap(), "2.0.0");
    }
    let master = StandIn::start(Dialect::D, Script::parse("* * fail 4"));
    let error = AsyncConnection::connect(master.address(), &ConnectOptions::default()).await.unwrap_err();
    assert!(matches!(error, ConnectError::Detect { .. }), "{error:?}");
}

#[tokio::test]
async fn each_fault_gives_a_typed_error_in_time() {
    let check = async |script: &str, is_expected: fn(&CallError) -> bool, breaks: bool| {
        let master = StandIn::start(Dialect::D, Script::parse(script));
        let mut options = ConnectOptions::in_dialect(Dialect::D);
        options.call_timeout = Duration::from_millis(300);
        let connection = AsyncConnection::connect(master.address(), &options).await.unwrap();
        let call = BatchExistKey { keys: (&["k"]).into(), ..Default::default() };
        let asked =
            tokio::time::timeout(Duration::from_secs(5), connection.call(&call, |results| results.len()));
        let error = asked.await.expect("an error in time").unwrap_err();
        assert!(is_expected(&error), "{script}: {error:?}");
        assert_eq!(error.breaks_connection(), breaks, "{script}");
        if breaks {
            let next = ready(&connection).await.unwrap_err();
            assert!(matches!(next, CallError::Broken), "{script}: {next:?}");
        }
    };
    let deadline = |error: &CallError| matches!(error, CallError::Deadline { .. });
    let closed = |error: &CallError| matches!(error, CallError::Closed { lost: 1, .. });
    let protocol = |error: &CallError| matches!(error, CallError::Protocol { lost: 1, .. });
    check("* * delay 800", deadline, false).await;
    check("* * stall", deadline, false).await;
    check("* * swallow", deadline, false).await;
    check("* * reorder", deadline, false).await;
    check("* * trickle 50", deadline, false).await;
    check("* * lie 5", deadline, false).await;
    check("* * drop", closed, true).await;
    check("* * truncate 20", closed, true).await;
    check("* * corrupt 0 1", protocol, true).await;
    check("* * renumber 9", protocol, true).await;
    check("* * lie 99999999", protocol, true).await;
    check("* * corrupt 16 2", |error| matches!(error, CallError::Decode { .. }), false).await;
    check("* * fail 4", |error| matches!(error, CallError::DialectMismatch { .. }), false).await;
    check("* * fail 10", |error| matches!(error, CallError::Failed { .. }), false).await;
}

#[tokio::test]
async fn an_unknown_reply_ends_all_calls() {
    let master = StandIn::start(Dialect::D, Script::parse("* 1 renumber 500\n* * stall"));
    let connection =
        AsyncConnection::connect(master.address(), &ConnectOptions::in_dialect(Dialect::D)).await.unwrap();
    let (first, second) = tokio::join!(ready(&connection), ready(&connection));
    for error in [first.unwrap_err(), second.unwrap_err()] {
        let CallError::Protocol { source, lost: 2 } = error else { panic!("{error:?}") };
        assert_eq!(source, ProtocolError::UnknownReply { seq_num: 500 });
    }
}

#[tokio::test]
async fn a_pool_has_as_many_connections_as_calls_up_to_its_bound() {
    let master = StandIn::start(Dialect::D, Script::parse("* 1 delay 100\n* 2 delay 100\n* 3 delay 100"));
    let mut options = PoolOptions::default();
    options.connect.dialect = Some(Dialect::D);
    options.max_connections = 2;
    let pool = Arc::new(AsyncPool::new(master.address(), options).await.unwrap());
    let call = async || pool.call(&ServiceReady {}, |ready| ready.is_ok()).await.unwrap();
    assert!(call().await);
    assert_eq!(pool.connections().await, 1, "one after the other needs one");
    let (a, b, c, d) = tokio::join!(call(), call(), call(), call());
    assert!(a && b && c && d);
    assert_eq!((pool.connections().await, master.connections()), (2, 2));
}

#[tokio::test]
async fn calls_in_flight_are_bounded() {
    let master = StandIn::start(Dialect::D, Script::parse("* * stall"));
    let mut options = PoolOptions::default();
    options.connect.dialect = Some(Dialect::D);
    options.connect.call_timeout = Duration::from_millis(200);
    options.max_in_flight = 2;
    let pool = AsyncPool::new(master.address(), options).await.unwrap();
    let call = async || pool.call(&ServiceReady {}, |ready| ready.is_ok()).await.unwrap_err();
    let (a, b, c) = tokio::join!(call(), call(), call());
    for error in [a, b, c] {
        assert!(matches!(error, CallError::Deadline { .. }), "{error:?}");
    }
    assert_eq!(master.answered(), 2, "the third had to wait");
}

#[tokio::test]
async fn a_pool_replaces_what_broke_only_if_that_is_wanted() {
    for reconnect in [Reconnect::Never, Reconnect::UpTo { attempts: 2, pause: Duration::ZERO }] {
        let master = StandIn::start(Dialect::D, Script::parse("* 1 drop"));
        let mut options = PoolOptions::default();
        options.max_connections = 1;
        options.connect.dialect = Some(Dialect::D);
        options.connect.reconnect = reconnect;
        let pool = AsyncPool::new(master.address(), options).await.unwrap();
        let call = async || pool.call(&ServiceReady {}, |ready| ready.is_ok()).await;
        assert!(matches!(call().await, Err(CallError::Closed { lost: 1, .. })));
        let next = call().await;
        match reconnect {
            Reconnect::Never => assert!(matches!(next, Err(CallError::Broken)), "{next:?}"),
            _ => assert!(next.unwrap()),
        }
    }
}
