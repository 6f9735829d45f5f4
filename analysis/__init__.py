"""From records to judgement: reads the published snapshot (or any data frame like it), never imports `harness`."""
