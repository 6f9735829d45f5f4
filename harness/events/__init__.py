"""The record: schema, writer, reader, upcasters, fold. Standard library only; can be copied beside any trainer."""
