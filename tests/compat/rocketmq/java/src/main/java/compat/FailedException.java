// The server, or the client with it, did not do what a scenario expects.
package compat;

final class FailedException extends RuntimeException {
    FailedException(String reason) {
        super(reason);
    }
}
