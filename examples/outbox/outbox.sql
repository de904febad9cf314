-- Messages that a transaction of yours leaves behind; reader.py brings them to Tarry and deletes them.
CREATE TABLE IF NOT EXISTS outbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,  -- the order in which rows are taken
    message uuid NOT NULL DEFAULT gen_random_uuid(),     -- the message's id: a number may come again after a restore
    action text NOT NULL DEFAULT 'schedule' CHECK (action IN ('schedule', 'cancel')),
    topic text NOT NULL,
    key text CHECK (key <> ''),
    body bytea NOT NULL DEFAULT '',
    due timestamptz CHECK (due BETWEEN '1970-01-01Z' AND '9999-01-01Z'),  -- none: at once
    written timestamptz NOT NULL DEFAULT now(),
    refused text,                                        -- why Tarry does not take it; such a row waits for you
    CHECK (action = 'schedule' OR key IS NOT NULL)
);
CREATE INDEX IF NOT EXISTS outbox_keys ON outbox (topic, key, id) WHERE key IS NOT NULL;

CREATE OR REPLACE FUNCTION outbox_written() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN NOTIFY outbox; RETURN NULL; END $$;
CREATE OR REPLACE TRIGGER outbox_written AFTER INSERT ON outbox
    FOR EACH STATEMENT EXECUTE FUNCTION outbox_written();
