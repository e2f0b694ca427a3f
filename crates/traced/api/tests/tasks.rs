//! In a program that isn't traced, a task is its future.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

async fn serve(listener: TcpListener) -> usize {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text.len()
}

#[test]
fn tasks_work_in_programs_that_are_not_traced() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_io().build().unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let serving = runtime.spawn(everycall::task(serve(listener)));
    let sending = everycall::named_task("sending", async move {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(&[b'x'; 100_000]).await.unwrap();
    });
    runtime.block_on(sending);
    assert_eq!(runtime.block_on(serving).unwrap(), 100_000);
}
