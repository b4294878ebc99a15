//! The blocking pool.
#![expect(clippy::unwrap_used, reason = "a test panics at every surprise")]

use std::thread;
use std::time::Duration;

use master_wire::{CallError, Dialect, Pool, PoolOptions, ServiceReady};
use testkit::master::{Script, StandIn};

fn pool(master: &StandIn, max_connections: usize) -> Pool {
    let mut options = PoolOptions::default();
    options.max_connections = max_connections;
    options.checkout_timeout = Duration::from_millis(100);
    options.connect.dialect = Some(Dialect::D);
    Pool::new(master.address(), options).unwrap()
}

#[test]
fn connections_are_shared_and_bounded() {
    let master = StandIn::start(Dialect::D, Script::honest());
    let pool = pool(&master, 2);
    let first = pool.get().unwrap();
    let second = pool.get().unwrap();
    let busy = pool.get().map(drop).unwrap_err();
    assert!(matches!(busy, CallError::Busy { connections: 2 }), "{busy:?}");
    drop(first);
    assert!(pool.call(&ServiceReady {}, |ready| ready.is_ok()).unwrap());
    drop(second);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut pool_connection = loop {
                    match pool.get() {
                        Err(CallError::Busy { .. }) => {}
                        got => break got.unwrap(),
                    }
                };
                assert_eq!(pool_connection.call(&ServiceReady {}).unwrap().unwrap(), "2.0.0");
            });
        }
    });
    assert_eq!((pool.connections(), master.connections()), (2, 2));
}

#[test]
fn what_broke_is_replaced() {
    let master = StandIn::start(Dialect::D, Script::parse("* 1 drop"));
    let pool = pool(&master, 1);
    assert!(matches!(pool.call(&ServiceReady {}, |_| ()), Err(CallError::Closed { lost: 1, .. })));
    assert!(pool.call(&ServiceReady {}, |ready| ready.is_ok()).unwrap());
    assert_eq!((pool.connections(), master.connections()), (1, 2));
    // One whose reply nobody took is not passed on either.
    pool.get().unwrap().submit(&ServiceReady {}).unwrap();
    assert_eq!(pool.connections(), 0);
    drop(master);
    assert!(matches!(pool.call(&ServiceReady {}, |_| ()), Err(CallError::Reconnect(_))));
    assert_eq!(pool.connections(), 0);
}
