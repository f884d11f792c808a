package load

import "time"

// report fills the columns of the result.
func (q *queue) report(m map[string]any) {
	elapsed := 0.0
	if first := q.firstAt.Load(); first != 0 {
		elapsed = q.endedAt.Sub(time.Unix(0, first)).Seconds()
		m["join_secs"] = R3(time.Unix(0, first).Sub(q.run.t0).Seconds())
	}
	q.run.EndAt(m, q.uniqueEnd, elapsed)
	m["open_secs"] = R3(q.opened.Seconds())
	m["consumers"] = q.cfg.N
	m["dup"] = q.seen.Dup.Load()
	m["stalled"] = q.stalled
	m["acked"] = q.acked.Load()
	m["max_open"] = q.mostHeld.Load()
	m["open_end"] = q.held.Load()
	if len(q.line) <= 40 {
		m["line"] = q.line
	}
	active := 0
	for i := range q.per {
		if q.per[i].Load() > 0 {
			active++
		}
	}
	m["active"] = active
	if q.cfg.RX != nil && q.uniqueEnd > 0 {
		m["rx_b_rec"] = R3(float64(q.cfg.RX.Load()) / float64(q.uniqueEnd))
	}
	q.reportRedelivery(m)
	q.reportLatency(m)
	q.reportPhase2(m)
}

func (q *queue) reportRedelivery(m map[string]any) {
	if at := q.redeliveredAt.Load(); at != 0 {
		m["first_redeliv_s"] = R3(time.Unix(0, at).Sub(q.run.t0).Seconds())
		m["first_redeliv_unix_ms"] = at / 1e6
	}
	if at := q.firstAt.Load(); at != 0 {
		m["first_unix_ms"] = at / 1e6
	}
}

func (q *queue) reportLatency(m map[string]any) {
	if q.cfg.Live {
		m["p50"], m["p99"], m["p999"], m["max_ms"] = q.latency.Q(.5), q.latency.Q(.99), q.latency.Q(.999), q.latency.Max()
		m["lat_n"] = q.latency.N()
	}
	if q.cfg.HotKey != "" {
		m["cold_p50"], m["cold_p99"], m["cold_max"] = q.cold.Q(.5), q.cold.Q(.99), q.cold.Max()
		m["hot_p50"], m["hot_max"], m["hot_n"] = q.hot.Q(.5), q.hot.Max(), q.hot.N()
	}
}

// reportPhase2 tells of the time after all gaps were open.
func (q *queue) reportPhase2(m map[string]any) {
	at := q.phase2At.Load()
	if at == 0 {
		return
	}
	records := q.uniqueEnd - 2*q.cfg.HoldFirst
	m["n2"] = records
	m["rate2"] = int64(float64(records) / q.endedAt.Sub(time.Unix(0, at)).Seconds())
	if records > 0 {
		m["cpu2_us_rec"] = R3((ReadProc(q.cfg.Pid).CPU - q.phase2CPU.Load().(float64)) / float64(records) * 1e6)
	}
}
