"""Stands in for test/service.py, which kafka-python's source distribution leaves out: the
integration tests use it to start brokers, and here the broker runs already."""


class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass

    def stop(self):
        pass


class SpawnedService:
    def __init__(self, *_args, **_kwargs):
        raise NotImplementedError("these tests run against a broker that is there")
