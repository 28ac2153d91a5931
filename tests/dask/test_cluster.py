"""Tasks and what is known of workers, without a cluster."""

import numpy as np
import pytest

from client_at_once import WORKERS, ClientAtOnce
from plml.backend.progress import work
from plml.dask import cluster as module
from plml.dask.cluster import Cluster, offsets_of


def _double(value):
    return 2 * value


class TestTasks:
    def test_a_task_has_the_name_of_its_stage_and_its_function(self):
        client = ClientAtOnce()
        cluster = Cluster(client, working_memory=3.0)
        assert cluster.submit(_double, 4) == 8
        with cluster.doing("anchors"):
            cluster.submit(_double, 4, on="tcp://a")
        assert cluster.submit(_double, 4) == 8
        functions, memory, options = zip(*client.submitted, strict=True)
        assert functions == (_double, _double, _double)
        assert memory == (3.0, 3.0, 3.0)
        names = [each["key"].rpartition("-")[0] for each in options]
        assert names == ["plml-double", "anchors-double", "plml-double"]
        assert len({each["key"] for each in options}) == 3
        assert [each.get("workers") for each in options] == [None, ["tcp://a"], None]
        assert options[1]["allow_other_workers"] is True
        assert {(each["pure"], each["fifo_timeout"]) for each in options} == {(False, 0)}

    def test_an_error_ends_the_stage(self):
        cluster = Cluster(ClientAtOnce())
        with pytest.raises(KeyError), cluster.doing("anchors"):
            raise KeyError
        assert cluster.stage == "plml"

    def test_one_task_per_part(self):
        cluster = Cluster(ClientAtOnce())
        assert cluster.map(max, [1, 5], [2, 3], known=(4,)) == [4, 5]
        with pytest.raises(ValueError, match="shorter"):
            cluster.map(max, [1, 5], [2])

    @pytest.mark.parametrize("n_rows", [0, 1, 1000])
    def test_rows_are_sent_in_pieces(self, n_rows, monkeypatch):
        monkeypatch.setattr(module, "_LARGEST_MESSAGE", 1000)
        client = ClientAtOnce()
        rows = np.arange(3.0 * n_rows).reshape(n_rows, 3)
        np.testing.assert_array_equal(Cluster(client).put_rows(rows), rows)
        assert len(client.submitted) == 1 + max(1, 24 * n_rows // 1000)
        assert Cluster(client).put("a value") == "a value"

    def test_waves_have_four_tasks_per_thread(self):
        """All are done before the next ones are submitted, and all parts get one."""
        waves = []

        def submitted(parts):
            waves.append(list(parts))
            return [10 * part for part in parts]

        found = Cluster(ClientAtOnce()).in_waves(submitted, list(range(26)))
        assert found == [10 * part for part in range(26)]
        assert [len(wave) for wave in waves] == [12, 12, 2]

    def test_it_is_said_how_far_a_stage_is(self, monkeypatch, capsys):
        monkeypatch.setattr(module, "as_completed", iter)
        reports = []
        cluster = Cluster(ClientAtOnce())
        with work(1), cluster.doing("neighbors"):
            monkeypatch.setattr(
                cluster._pieces, "report", lambda text, share: reports.append((text, share))
            )
            assert cluster.watched([7, 8]) == [7, 8]
            cluster.in_waves(list, [1, 2, 3])
        assert reports == [
            ("neighbors: 1 of 2", 0.5),
            ("neighbors: 2 of 2", 1.0),
            ("neighbors: 3 of 3", 1.0),
        ]


class TestWorkers:
    def test_addresses_by_thread(self):
        assert Cluster(ClientAtOnce()).workers() == ["tcp://a", "tcp://a", "tcp://b"]

    def test_memory_is_that_of_the_smallest_thread(self):
        """A quarter of what the libraries leave; a worker without a limit has no smallest."""
        assert Cluster(ClientAtOnce()).memory_per_thread() == (2**32 - 2**28) / 4
        small = {"tcp://a": {"nthreads": 2, "memory_limit": 2**28}}
        assert Cluster(ClientAtOnce(small)).memory_per_thread() == pytest.approx(2**28 / 80)
        unlimited = {"tcp://a": {"nthreads": 2, "memory_limit": 0}}
        assert Cluster(ClientAtOnce(unlimited)).memory_per_thread() == np.inf

    def test_a_cluster_that_has_lost_its_workers_is_waited_for(self):
        client = ClientAtOnce({}, WORKERS)
        assert len(Cluster(client).workers()) == 3
        assert client.waited == [1]

    def test_a_cluster_without_workers_says_so(self):
        client = ClientAtOnce({})
        with pytest.raises(RuntimeError) as error:
            Cluster(client).workers()
        assert str(error.value) == (
            "the Dask cluster at tcp://scheduler has had no workers for 60 seconds; start some"
        )
        assert client.submitted == ["cancelled"]  # the task that asked for one


def test_offsets_say_where_blocks_start_and_end():
    assert offsets_of([3, 0, 2]).tolist() == [0, 3, 3, 5]
    assert offsets_of([]).tolist() == [0]
    assert offsets_of([3]).dtype == np.int64
