"""Speaks HTTP/1.1 over TLS. The certificate of a server under test is not checked: it is often its own."""

import errno
import importlib

from . import http

ssl = importlib.import_module("ssl")  # by its name, or it would be copied into all containers, with its libraries
NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL")


def context():
    """Return what makes TLS sockets."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    made.set_alpn_protocols(["http/1.1"])
    return made


def told(error):
    """Return why TLS failed, in words."""
    reason = error.reason or "the connection was closed"
    if "alert no application protocol" in str(error):  # an alert without a reason of its own
        return http.ONLY_HTTP_2
    if reason in NO_TLS:
        return "the server does not speak TLS; leave out `tls: true`, or --tls"
    return "TLS: " + reason.lower().replace("_", " ")


class TlsConnection(http.Connection):
    """A connection as of http.py, over TLS."""

    def __init__(self, address, poll, made):
        http.Connection.__init__(self, address, poll)
        self._context, self._greets = made, False

    def _opened(self, family):
        self._greets = True  # until the first byte of a request is sent
        return self._context.wrap_socket(http.Connection._opened(self, family), do_handshake_on_connect=False)

    def _sent(self):
        try:
            sent = self._socket.send(self._out)
        except ssl.SSLWantReadError:
            return None
        except ssl.SSLWantWriteError:
            return 0
        except ssl.SSLError as error:
            raise OSError(errno.EPROTO, told(error))
        self._greets = False
        return sent

    def read(self, clock):
        if self._greets and self.busy:
            self._write()
            return None
        try:
            return http.Connection.read(self, clock)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        except ssl.SSLError as error:
            raise OSError(errno.EPROTO, told(error))
