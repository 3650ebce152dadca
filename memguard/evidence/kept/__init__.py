"""What user code keeps: outputs, views, copies of weights, exceptions."""
